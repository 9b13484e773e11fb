package process

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// Each of the three signals stops the parts in reverse order.
// Req: LP-36
func TestSignals_StopTheParts(t *testing.T) {
	enableHangup(t)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		ctx, stop := Signals(t.Context())
		d := &eventLog{}
		require.NoError(t, Run(ctx, zap.NewNop(), func() { require.NoError(t, syscall.Kill(os.Getpid(), signal)) },
			d.part("a"), d.part("b")))
		stop()
		require.Equal(t, []string{"+a", "+b", "-b", "-a"}, d.lines, signal)
	}
}

// enableHangup stops ignoring SIGHUP in this process and its children, because the tests may run under nohup.
func enableHangup(t *testing.T) {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(heard) })
}

// runInChild runs a test of this binary in a child process that a shell starts, and returns how the child ended.
func runInChild(t *testing.T, script string) syscall.WaitStatus {
	t.Helper()
	enableHangup(t)
	child := exec.CommandContext(t.Context(), "/bin/sh", "-c", script, os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), childEnv+"=1")
	_ = child.Run() // the process state says more than the error
	status, ok := child.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	return status
}

// Closing a terminal sends SIGHUP, and its shell may send a second one. The second SIGHUP does not interrupt the
// graceful stop, but SIGTERM still does.
func TestSignals_StopContinuesWhenTheTerminalCloses(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		ctx, stop := Signals(t.Context())
		defer stop()
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		<-ctx.Done()
		for { // until the signals have their default effect again
			require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
			require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
		}
	}
	status := runInChild(t, `exec "$0" "$@"`)
	require.True(t, status.Signaled())
	require.Equal(t, syscall.SIGTERM, status.Signal())
}

// A process started with nohup survives the end of its terminal.
func TestSignals_IgnoreSIGHUPUnderNohup(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		ctx, stop := Signals(t.Context())
		defer stop()
		require.True(t, signal.Ignored(syscall.SIGHUP))
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		require.NoError(t, ctx.Err())
		return
	}
	status := runInChild(t, `trap "" HUP; exec "$0" "$@"`)
	require.True(t, status.Exited())
	require.Zero(t, status.ExitStatus())
}
