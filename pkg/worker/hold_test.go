package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// leases answers RenewTurn as the test says.
type leases struct {
	memory.Turns
	answers func(call int) error
	calls   int
}

func (l *leases) RenewTurn(context.Context, memory.Hold, time.Duration) error {
	l.calls++
	return l.answers(l.calls)
}

func TestRenew_EndsTheStepWhenTheTurnIsAnothers(t *testing.T) {
	for _, mode := range []failure.Mode{failure.Fenced, failure.TurnNotOpen, failure.NotFound, failure.SessionDeleted} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancelCause(t.Context())
				refused := failure.New(mode, "test", "no")
				began := time.Now()
				renew(ctx, &leases{answers: func(call int) error {
					if call < 3 {
						return nil
					}
					return refused
				}}, memory.Hold{}, end)
				require.ErrorIs(t, context.Cause(ctx), refused)
				require.Equal(t, 3*renewEvery, time.Since(began))
			})
		})
	}
}

func TestRenew_GivesUpOnceALeaseHasPassedInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancelCause(t.Context())
		away := failure.New(failure.SystemNetwork, "test", "away")
		began := time.Now()
		l := &leases{answers: func(call int) error {
			if call == 2 {
				return nil
			}
			return away
		}}
		renew(ctx, l, memory.Hold{}, end)
		require.ErrorContains(t, context.Cause(ctx), "the step is given up")
		require.Equal(t, 2*renewEvery+turnLease+renewEvery, time.Since(began), "counted from the last answer")
	})
}
