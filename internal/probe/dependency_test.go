package probe

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// The board shows the reason of a dependency that replies but cannot serve. For other errors it shows only that
// the dependency cannot be reached, because an error may hold a secret. Each change of the reason is logged.
func TestDependency_ShowsItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		board, asked := NewBoard("redis"), make(chan error)
		ctx, stop := context.WithCancel(t.Context())
		part := DependencyPart(board, zap.New(core), Dependency{Condition: "redis", Address: "there:1", Check: func(ctx context.Context) error {
			select {
			case err := <-asked:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}}, true)
		go func() { _ = part.Run(ctx, func() {}) }()
		notServing := &NotServingError{Reason: "is full", Cause: errors.New("hunter2")}
		for _, c := range []struct {
			err   error
			board string
			lines int
		}{
			{errors.New("hunter2"), "redis: there:1 cannot be reached", 1},
			{errors.New("hunter2"), "redis: there:1 cannot be reached", 1},
			{fmt.Errorf("ask: %w", notServing), "redis: there:1 is full", 2},
			{nil, "", 2},
			{notServing, "redis: there:1 is full", 3},
		} {
			asked <- c.err
			synctest.Wait()
			if c.board == "" {
				require.NoError(t, board.Ready())
			} else {
				require.EqualError(t, board.Ready(), c.board)
			}
			require.Equal(t, c.lines, logs.FilterMessage("waiting for a dependency").Len())
		}
		stop()
		synctest.Wait()
	})
}
