package hook_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// Each rejected write is emitted before the next event, even if the agent ignores the error.
// Req: SO-6
func TestTurn_EmitsEachRejectedWrite(t *testing.T) {
	var heard []event.Payload
	state, config := ownership.NewAgentState("clerk", nil, nil), ownership.NewConfig("clerk", "")
	c := hook.New(hook.Start{
		Info: hook.Info{Agent: "clerk"}, State: state, Config: config,
		Emit: func(e event.Event) error {
			require.Equal(t, "clerk", e.Author)
			require.Equal(t, len(heard)+1, e.Sequence)
			heard = append(heard, e.Payload)
			return nil
		},
	})
	_ = c.Turn().State().Set("history", 1)
	_ = c.Turn().Memory().Set("trace_id", 1)
	_ = c.Turn().Config().Set("tone", "kind")
	_ = c.Turn().Memory().Fork("aide").Delete("_x")
	require.NoError(t, state.Set("mine", 1))
	require.Empty(t, heard)
	require.NoError(t, c.Events.Emit(event.Warning{Reason: "NEXT"}))
	require.Equal(t, []event.Payload{
		event.OwnershipViolation{Key: "history", Owner: ownership.Memory, Actor: "clerk", Operation: "ownership.set"},
		event.OwnershipViolation{Key: "trace_id", Owner: ownership.Orchestrator, Actor: "clerk", Operation: "hook.Memory"},
		event.OwnershipViolation{Key: "config", Owner: ownership.Shared, Actor: "clerk", Operation: "config.set"},
		event.OwnershipViolation{Key: "_x", Owner: ownership.Agent, Actor: "aide", Operation: "hook.Memory"},
		event.Warning{Reason: "NEXT"},
	}, heard)
}

// The number of emitted violations is bounded: tools that write concurrently in a loop do not flood the trace.
func TestTurn_BoundsTheRejectedWritesItEmits(t *testing.T) {
	heard := 0
	c := hook.New(hook.Start{Info: hook.Info{Agent: "clerk"}, Emit: func(event.Event) error { heard++; return nil }})
	ctx, leave := c.EnterTool(t.Context(), "c1", c.Turn().Memory())
	defer leave()
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 100 {
				_ = hook.InTool(ctx).State().Delete("facts")
			}
		})
	}
	running.Wait()
	require.NoError(t, c.Events.Emit(event.Warning{}))
	require.Equal(t, 17, heard)
}
