package turn

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/admit"
)

// firstReplyLostMemory is a memory service that loses the first reply to a BeginTurn that begins a turn.
type firstReplyLostMemory struct {
	admit.Memory
	wasLost bool
}

func (f *firstReplyLostMemory) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	begun, err := f.Memory.BeginTurn(ctx, b)
	if !f.wasLost && !b.LookupOnly {
		f.wasLost = true
		return memory.BeginResult{}, context.DeadlineExceeded
	}
	return begun, err
}

// A turn whose begin is in doubt need not wait for its lease to expire, because the same request continues it.
func TestRunner_ContinuesATurnWhoseBeginWasLost(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	replaceRunner(t, runner, func(c *Config) { c.Memory = &firstReplyLostMemory{Memory: runner.cfg.Memory} })

	for _, err := range runner.Orchestrate(t.Context(), textRequest("s1", "r1")) {
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	events := runToEnd(t, runner, textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome())
	require.EqualValues(t, 1, events[0].GetTurn())
}
