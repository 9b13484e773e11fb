package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// childEnv is the environment variable that marks the child process in which the test crashes.
const childEnv = "TROUPE_TEST_CHILD"

// A crashing process leaves no core dump, whatever limits its parent has set.
func TestMain_LeavesNoCoreDump(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}))
		require.NoError(t, disableCoreDumps())
		var left unix.Rlimit
		require.NoError(t, unix.Getrlimit(unix.RLIMIT_CORE, &left))
		require.Zero(t, left)
		dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		require.NoError(t, err)
		require.Zero(t, dumpable)
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGABRT))
		select {}
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMain_LeavesNoCoreDump$")
	child.Dir, child.Env = t.TempDir(), append(os.Environ(), childEnv+"=1", "GOTRACEBACK=crash")
	require.Error(t, child.Run())
	status, ok := child.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.True(t, status.Signaled(), "it crashed, and did not fail: %v", child.ProcessState)
	require.Equal(t, syscall.SIGABRT, status.Signal())
	require.False(t, status.CoreDump())
	cores, err := filepath.Glob(filepath.Join(child.Dir, "core*"))
	require.NoError(t, err)
	require.Empty(t, cores)
}
