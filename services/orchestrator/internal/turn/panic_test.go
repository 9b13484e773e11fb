package turn

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/admit"
)

// panickingMemory is a memory service that panics once, in the goroutine that renews a lease.
type panickingMemory struct {
	admit.Memory
	shouldPanic atomic.Bool
}

func (m *panickingMemory) RenewTurn(ctx context.Context, h memory.Lease, lease time.Duration) error {
	if m.shouldPanic.Swap(false) {
		panic("secret")
	}
	return m.Memory.RenewTurn(ctx, h, lease)
}

// A panic in a background goroutine ends only its turn. The panic is counted, and its text is not exposed. The
// orchestrator and the next turn of the session work normally.
func TestTurn_PanicInABackgroundTaskEndsOnlyThatTurn(t *testing.T) {
	r := newRig(t)
	runner := r.newRunner(t, "one")
	mined := &panickingMemory{Memory: runner.cfg.Memory}
	replaceRunner(t, runner, func(c *Config) { c.Memory, c.renewalInterval = mined, 10*time.Millisecond })
	_, _, release := r.blockResearch() // so that the turn does not end before the panic
	mined.shouldPanic.Store(true)
	events := runToEnd(t, runner, textRequest("s1", "r1"))
	result := turnResult(events)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_FAILED, result.GetOutcome(), "%v", result)
	require.Contains(t, result.GetFailure().GetMessage(), "internal error")
	require.NotContains(t, result.String(), "secret")

	release()
	events = runToEnd(t, runner, textRequest("s2", "r2"))
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome())
}
