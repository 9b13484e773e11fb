package failure

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestContained_APanicBesideOthersEndsThemWithAnErrorThatTellsNothing(t *testing.T) {
	var ended []error
	var beside sync.WaitGroup
	beside.Go(func() {
		Contained("turn.keep", func(err error) { ended = append(ended, err) }, func() { panic("secret") })
	})
	beside.Wait()
	require.Len(t, ended, 1)
	require.True(t, IsPanic(fmt.Errorf("wrapped: %w", ended[0])))
	require.ErrorContains(t, ended[0], "secret", "the log has it")
	require.NotContains(t, fmt.Sprint(ToStatus(ended[0]), ToProto(ended[0])), "secret")

	Contained("turn.keep", func(error) { t.Error("nothing went wrong") }, func() {})
	require.False(t, IsPanic(New(Unknown, "op", "no")))
	require.False(t, IsPanic(nil))
}
