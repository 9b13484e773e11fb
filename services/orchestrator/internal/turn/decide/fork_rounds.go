package decide

import (
	"cmp"
	"context"
	"slices"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// forkedHistory maps the messages of a session to those of its fork.
type forkedHistory struct {
	sequences map[int64]int64 // sequence in the fork by sequence in the session
	turnStart int64           // sequence of the first message of the forked turn, in the session
	inherited map[int]bool    // the inherited steps
}

// newForkedHistory returns the mapping for a fork whose first turn begins with the message said.
func newForkedHistory(copied *memory.Copy, said conversation.Message, inherited []execution.Result) forkedHistory {
	h := forkedHistory{sequences: map[int64]int64{}, turnStart: said.Sequence, inherited: map[int]bool{}}
	for _, m := range slices.Concat(copied.History, []conversation.Message{said}, copied.StepMessages) {
		h.sequences[m.Sequence] = int64(len(h.sequences) + 1)
	}
	for _, r := range inherited {
		h.inherited[r.Step] = true
	}
	return h
}

// rounds returns the rounds of an agent that the fork begins with: those that follow a message of the fork. From the
// forked turn, they include only the rounds of inherited steps.
func (h forkedHistory) rounds(steps []conversation.Rounds) []conversation.Rounds {
	var all []conversation.Rounds
	for _, r := range steps {
		after, isCopied := h.sequences[r.After]
		isOfTurn := r.After >= h.turnStart
		if !isCopied || isOfTurn && !h.inherited[r.Step] {
			continue
		}
		r.After, r.Turn, r.Messages = after, 0, slices.Clone(r.Messages)
		for i, m := range r.Messages {
			if len(m.Attachments) > 0 {
				r.Messages[i] = withoutFiles(m)
			}
		}
		if isOfTurn {
			r.Turn = 1 // the number of the first turn of the fork
		}
		all = append(all, r)
	}
	return all
}

// loadForkedRounds returns the rounds with which a fork begins, by agent. The agents are those that wrote the messages
// or the inherited results.
func loadForkedRounds(ctx context.Context, store Memory, ref session.Ref, h forkedHistory, messages []conversation.Message, inherited []execution.Result,
) (map[string][]conversation.Rounds, error) {
	all := map[string][]conversation.Rounds{}
	for _, agent := range agentsOf(messages, inherited) {
		steps, err := retry.Do(ctx, func(ctx context.Context) ([]conversation.Rounds, error) {
			return store.LoadRounds(ctx, ref, agent, 0, nil)
		})
		if err != nil {
			return nil, err
		}
		if rounds := h.rounds(steps); len(rounds) > 0 {
			all[agent] = rounds
		}
	}
	return latestRounds(all), nil
}

// agentsOf returns the agents that wrote the messages or the results, sorted.
func agentsOf(messages []conversation.Message, results []execution.Result) []string {
	var agents []string
	for _, m := range messages {
		if m.Role == conversation.RoleAssistant && m.Author != "" {
			agents = append(agents, m.Author)
		}
	}
	for _, r := range results {
		agents = append(agents, r.Agent)
	}
	slices.Sort(agents)
	return slices.Compact(agents)
}

// latestRounds leaves out the oldest rounds until the rest fits into a copy.
func latestRounds(byAgent map[string][]conversation.Rounds) map[string][]conversation.Rounds {
	type position struct {
		agent string
		after int64
		size  int
	}
	var oldest []position
	size := 0
	for agent, rounds := range byAgent {
		for _, r := range rounds {
			oldest, size = append(oldest, position{agent, r.After, r.Size()}), size+r.Size()
		}
	}
	slices.SortStableFunc(oldest, func(a, b position) int {
		return cmp.Or(cmp.Compare(a.after, b.after), cmp.Compare(a.agent, b.agent))
	})
	for _, p := range oldest {
		if size <= memory.MaxWindowBytes {
			break
		}
		byAgent[p.agent], size = byAgent[p.agent][1:], size-p.size
		if len(byAgent[p.agent]) == 0 {
			delete(byAgent, p.agent)
		}
	}
	return byAgent
}
