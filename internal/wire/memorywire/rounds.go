package memorywire

import (
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/convert"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// RoundsToProto converts the rounds of a commit.
func RoundsToProto(rounds []memory.RoundMessage) []*troupev1.RoundMessage {
	return convert.All(rounds, func(r memory.RoundMessage) *troupev1.RoundMessage {
		return &troupev1.RoundMessage{Message: wire.MessageToProto(r.Message), Entry: int32(r.Entry)}
	})
}

// RoundsFromProto is the inverse of RoundsToProto.
func RoundsFromProto(rounds []*troupev1.RoundMessage) []memory.RoundMessage {
	return convert.All(rounds, func(r *troupev1.RoundMessage) memory.RoundMessage {
		return memory.RoundMessage{Message: wire.MessageFromProto(r.GetMessage()), Entry: int(r.GetEntry())}
	})
}

// StepRoundsToProto converts the tool rounds of an agent, by step.
func StepRoundsToProto(steps []conversation.Rounds) []*troupev1.StepRounds {
	return convert.All(steps, func(r conversation.Rounds) *troupev1.StepRounds {
		return &troupev1.StepRounds{Turn: int32(r.Turn), Step: int32(r.Step), After: r.After, Messages: wire.MessagesToProto(r.Messages)}
	})
}

// StepRoundsFromProto is the inverse of StepRoundsToProto.
func StepRoundsFromProto(steps []*troupev1.StepRounds) []conversation.Rounds {
	return convert.All(steps, func(r *troupev1.StepRounds) conversation.Rounds {
		return conversation.Rounds{Turn: int(r.GetTurn()), Step: int(r.GetStep()), After: r.GetAfter(), Messages: wire.MessagesFromProto(r.GetMessages())}
	})
}

// RoundsPositionToProto converts the step before which a page of rounds ends, without its messages (nil means no step).
func RoundsPositionToProto(before *conversation.Rounds) *troupev1.StepRounds {
	if before == nil {
		return nil
	}
	return &troupev1.StepRounds{Turn: int32(before.Turn), Step: int32(before.Step), After: before.After}
}

// RoundsPositionFromProto is the inverse of RoundsPositionToProto.
func RoundsPositionFromProto(before *troupev1.StepRounds) *conversation.Rounds {
	if before == nil {
		return nil
	}
	return &conversation.Rounds{Turn: int(before.GetTurn()), Step: int(before.GetStep()), After: before.GetAfter()}
}

// agentRoundsToProto converts the tool rounds of several agents.
func agentRoundsToProto(rounds map[string][]conversation.Rounds) []*troupev1.AgentRounds {
	return convert.All(slices.Sorted(maps.Keys(rounds)), func(agent string) *troupev1.AgentRounds {
		return &troupev1.AgentRounds{Agent: agent, Steps: StepRoundsToProto(rounds[agent])}
	})
}

// agentRoundsFromProto is the inverse of agentRoundsToProto.
func agentRoundsFromProto(rounds []*troupev1.AgentRounds) map[string][]conversation.Rounds {
	if len(rounds) == 0 {
		return nil
	}
	all := map[string][]conversation.Rounds{}
	for _, r := range rounds {
		all[r.GetAgent()] = append(all[r.GetAgent()], StepRoundsFromProto(r.GetSteps())...)
	}
	return all
}
