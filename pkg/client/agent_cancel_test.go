package client_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// ramJournal records a step in RAM and replays it in the turn that continues the step.
type ramJournal struct {
	mu      sync.Mutex
	entries map[int]map[execution.Phase]execution.Entry
}

func newJournal() *ramJournal {
	return &ramJournal{entries: map[int]map[execution.Phase]execution.Entry{}}
}

func (j *ramJournal) Replay(number int, phase execution.Phase) (execution.Entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, ok := j.entries[number][phase]
	return e, ok
}

func (j *ramJournal) Record(e execution.Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.entries[e.Number] == nil {
		j.entries[e.Number] = map[execution.Phase]execution.Entry{}
	}
	j.entries[e.Number][e.Phase] = e
}

func (*ramJournal) Sync(context.Context) error { return nil }

// A step calls a remote agent, and a tool whose call waits for an answer. The turn that continues the step has
// another id, but it requests the same remote turn. So the remote agent runs only once.
func TestAgent_RunsOnceWhenAnotherCallWaits(t *testing.T) {
	m := &fakeMesh{events: flowEvents()}
	remote, err := serveMesh(t, m).Agent("research", agent.Config{})
	require.NoError(t, err)
	screen, err := tool.Client("screen", "Looks at the screen.", []byte(`{"type":"object"}`))
	require.NoError(t, err)
	looker, err := agent.New(agent.Config{
		Name: "looker", Tools: []tool.Tool{screen},
		Model: scripted.New(scripted.Call(conversation.ToolCall{ID: "c1", Name: "screen", Arguments: "{}"}), scripted.Say("It shows a cat.")),
	})
	require.NoError(t, err)
	team, err := flow.Sequence(agent.Config{Name: "team"}, remote, looker)
	require.NoError(t, err)

	inv := agent.Invocation{Step: newStep()}
	inv.Step.Journal = newJournal()
	_, done, err := runAgent(t.Context(), team, inv)
	require.NoError(t, err)
	require.Len(t, done.Result.Pending, 1)
	inv.Step.TurnID, inv.Step.Attempt = "turn-2", 2
	inv.Step.Answers = []execution.Answer{{ID: done.Result.Pending[0].ID, Verdict: execution.Succeed, Text: "a cat"}}
	_, done, err = runAgent(t.Context(), team, inv)
	require.NoError(t, err)
	require.Equal(t, "It shows a cat.", done.Result.Text)
	require.Len(t, m.requests, 2)
	require.Equal(t, m.requests[0].GetRequestId(), m.requests[1].GetRequestId())
}

// The remote turn is cancelled when the parent is stopped or cancelled, or when its events are not read. It
// continues when a successor may attach to it.
// Req: AD-33
func TestAgent_CancelsTheRemoteTurn(t *testing.T) {
	userCancelled := failure.New(failure.UserCancelled, "turn", "the turn was cancelled")
	for name, tc := range map[string]struct {
		journal   bool
		leave     func(stop func(), cancel context.CancelCauseFunc) (keepReading bool)
		reason    event.Reason
		cancelled bool
	}{
		"stopped":             {true, func(stop func(), _ context.CancelCauseFunc) bool { stop(); return true }, event.Stopped, true},
		"not read":            {true, func(func(), context.CancelCauseFunc) bool { return false }, "", true},
		"cancelled":           {true, func(_ func(), cancel context.CancelCauseFunc) bool { cancel(userCancelled); return true }, event.Interrupted, true},
		"worker lost":         {true, func(_ func(), cancel context.CancelCauseFunc) bool { cancel(nil); return true }, event.Interrupted, false},
		"without a successor": {false, func(_ func(), cancel context.CancelCauseFunc) bool { cancel(nil); return true }, event.Interrupted, true},
		"already ended":       {true, nil, event.Natural, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := &fakeMesh{events: flowEvents()}
			if tc.leave != nil {
				m.sendLast = make(chan struct{})
			}
			remote, err := serveMesh(t, m).Agent("research", agent.Config{})
			require.NoError(t, err)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			stop, now := context.WithCancel(t.Context())
			defer now()
			inv := agent.Invocation{Step: newStep(), Stop: stop}
			if tc.journal {
				inv.Step.Journal = newJournal()
			}
			var reason event.Reason
			for e, err := range remote.Run(ctx, inv) {
				require.True(t, err == nil || tc.reason == event.Interrupted, "%v", err)
				if p, ok := e.Payload.(event.TurnResult); ok && err == nil {
					reason = p.Reason
				}
				if err == nil && tc.leave != nil && e.Kind() == (event.Warning{}).Kind() && !tc.leave(now, cancel) {
					break
				}
			}
			require.Equal(t, tc.reason, reason)
			var want []string
			if tc.cancelled {
				want = []string{traceID}
			}
			require.Equal(t, want, m.cancelled)
		})
	}
}
