package panics

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
)

func TestGuard_ErrorDoesNotDiscloseThePanic(t *testing.T) {
	var failed []error
	var goroutine sync.WaitGroup
	goroutine.Go(func() {
		Guard("turn.keep", func(err error) { failed = append(failed, err) }, func() { panic("secret") })
	})
	goroutine.Wait()
	require.Len(t, failed, 1)
	require.True(t, Is(fmt.Errorf("wrapped: %w", failed[0])))
	require.ErrorContains(t, failed[0], "secret", "the log has it")
	require.NotContains(t, fmt.Sprint(grpcfailure.ToStatus(failed[0]), grpcfailure.ToProto(failed[0])), "secret")

	Guard("turn.keep", func(error) { t.Error("nothing went wrong") }, func() {})
	require.False(t, Is(failure.New(failure.Unknown, "op", "no")))
	require.False(t, Is(nil))
}
