package turnlease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/turnlease"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// fakeLeases is a memory.Turns whose RenewTurn calls a function of the test.
type fakeLeases struct {
	memory.Turns
	answers func(call int) error
	calls   int
}

func (l *fakeLeases) RenewTurn(context.Context, memory.Lease, time.Duration) error {
	l.calls++
	return l.answers(l.calls)
}

func TestRenew_EndsTheStepWhenTheTurnIsTakenOver(t *testing.T) {
	for _, mode := range []failure.Mode{failure.Fenced, failure.TurnNotOpen, failure.NotFound, failure.SessionDeleted} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancelCause(t.Context())
				rejection := failure.New(mode, "test", "no")
				began := time.Now()
				turnlease.Renew(ctx, &fakeLeases{answers: func(call int) error {
					if call < 3 {
						return nil
					}
					return rejection
				}}, memory.Lease{}, 30*time.Second, end)
				require.ErrorIs(t, context.Cause(ctx), rejection)
				require.Equal(t, 30*time.Second, time.Since(began))
			})
		})
	}
}

func TestRenew_EndsTheStepWhenTheStoreIsUnreachableForAWholeLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancelCause(t.Context())
		away := failure.New(failure.SystemNetwork, "test", "away")
		began := time.Now()
		l := &fakeLeases{answers: func(call int) error {
			if call == 2 {
				return nil
			}
			return away
		}}
		turnlease.Renew(ctx, l, memory.Lease{}, 30*time.Second, end)
		why, ok := errors.AsType[*failure.Error](context.Cause(ctx))
		require.True(t, ok)
		require.ErrorContains(t, why, "the step is abandoned")
		require.Equal(t, "true", why.Facts["lost_lease"], "the step itself did not fail")
		require.Equal(t, 60*time.Second, time.Since(began), "counted from the last successful renewal")
	})
}
