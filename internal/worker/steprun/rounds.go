package steprun

import (
	"context"

	"github.com/troupe-dev/troupe/internal/recorder"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/internal/toolrounds"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// loadRounds loads the tool rounds that the agent remembers into the step.
func (r *Runner) loadRounds(ctx context.Context, req *troupev1.ExecuteStepRequest, step *execution.Step) error {
	if !req.GetHasRounds() || len(step.History) == 0 {
		return nil
	}
	rounds, err := retry.Do(ctx, func(ctx context.Context) ([]conversation.Rounds, error) {
		return r.store.LoadRounds(ctx, SessionRef(req), step.Agent, step.History[0].Sequence, nil)
	})
	if err != nil {
		return err
	}
	step.Rounds = toolrounds.Visible(*step, rounds)
	return nil
}

// roundsToCommit returns the rounds of a step for the history of its agent. A recorded step stores them apart from its
// journal, which is kept for a shorter time.
func roundsToCommit(req *troupev1.ExecuteStepRequest, journal *recorder.Recorder, messages []conversation.Message) []memory.RoundMessage {
	rounds := toolrounds.Latest(messages)
	if req.GetRecorded() {
		return rounds
	}
	return journal.ReferToEntries(rounds)
}
