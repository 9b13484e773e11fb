package process

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// Either signal stops the parts in order, last first.
//
// Req: LP-36
func TestSignals_StopTheParts(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		ctx, stop := Signals(t.Context())
		d := &diary{}
		require.NoError(t, Run(ctx, zap.NewNop(), func() { require.NoError(t, syscall.Kill(os.Getpid(), signal)) },
			d.part("a"), d.part("b")))
		stop()
		require.Equal(t, []string{"+a", "+b", "-b", "-a"}, d.lines, signal)
	}
}
