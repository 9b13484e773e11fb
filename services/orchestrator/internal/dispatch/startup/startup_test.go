package startup

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// An instance is started only once. A start is retried only if it never reached its worker.
func TestStarter_RetriesOnlyAStartThatNeverReachedItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unreachable := failure.New(failure.SystemNetwork, "test", "no answer")
		tries, answers := 0, make(chan error)
		s := NewStarter(func(context.Context, registry.Instance) (*grpc.ClientConn, func(), error) {
			tries++
			return nil, nil, <-answers
		})
		defer s.Close()
		in := registry.Instance{Agent: "a", ID: "1", Incarnation: 1, State: lifecycle.Uninitialized}
		first := s.Begin(in)
		require.Same(t, first, s.Begin(in), "it runs still")
		require.ErrorIs(t, first.Err(), errStarting)
		answers <- unreachable
		synctest.Wait()
		require.ErrorIs(t, first.Err(), unreachable)

		second := s.Begin(in)
		require.NotSame(t, first, second)
		answers <- failure.New(failure.ResourceTool, "test", "its tool does not work")
		synctest.Wait()
		require.Same(t, second, s.Begin(in))
		require.Equal(t, 2, tries)

		s.ForgetUnneeded([]registry.Instance{in})
		require.Same(t, second, s.Begin(in))
		s.ForgetUnneeded(nil)
		require.NotSame(t, second, s.Begin(in))
		answers <- unreachable
	})
}
