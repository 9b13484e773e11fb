package mesh

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func shell(t *testing.T, script string) *Process {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	p, err := launch("it", program, filepath.Join(t.TempDir(), "log"), []string{"WORD=hello"})
	require.NoError(t, err)
	return p
}

// Kill fails when the process has already ended, because a run without the kill would prove nothing.
func TestProcess_KillRequiresALiveProcess(t *testing.T) {
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Fatal(err)
	}
	p := shell(t, "exec sleep 60")
	thaw, err := p.Freeze()
	require.NoError(t, err)
	require.False(t, p.HasEnded())
	require.NoError(t, p.Kill(), "also one that stands still")
	require.True(t, p.HasEnded())
	thaw()
	require.ErrorContains(t, p.Kill(), "it was dead already")
	_, err = p.Freeze()
	require.Error(t, err)
}

func TestProcess_KeepsItsOutput(t *testing.T) {
	p := shell(t, `echo "$WORD"`)
	<-p.done
	said, err := os.ReadFile(p.log.Name())
	require.NoError(t, err)
	require.Equal(t, "hello\n", string(said))
}
