package identity

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// Processes that start at the same time with an empty folder share one CA.
func TestOpenCA_ConcurrentCallersShareOneCA(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "identity")
	made := make([]*CA, 8)
	var making sync.WaitGroup
	for i := range made {
		making.Go(func() {
			ca, err := OpenCA(dir)
			if err != nil {
				t.Error(err)
			}
			made[i] = ca
		})
	}
	making.Wait()
	for _, ca := range made {
		require.Equal(t, made[0].cert.Raw, ca.cert.Raw)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1)
	info, err := left[0].Info()
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
}

func TestOpenCA_RejectsAnInvalidFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, devFile)
	require.NoError(t, os.WriteFile(file, []byte("garbage"), 0o600))
	_, err := OpenCA(dir)
	require.ErrorContains(t, err, file+" contains no CA; remove it")
}

// A process with --tls-dev-ca gets its certificate from the CA, and a new certificate before the old one expires.
func TestOpen_RenewsCertificatesOfADevelopmentCA(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(Config{DevCA: dir}, Worker, "a", zap.NewNop())
		require.NoError(t, err)
		require.Equal(t, "spiffe://dev.troupe/worker/a", s.id.String())
		first := s.current()
		time.Sleep(devLifetime / 3)
		require.Same(t, first, s.current())
		time.Sleep(devLifetime / 3)
		second := s.current()
		require.NotSame(t, first, second)
		id, err := first.verify(second.pair.Certificate)
		require.NoError(t, err)
		require.Equal(t, s.id, id)
	})
	_, err := Open(Config{DevCA: dir}, Worker, "a b", zap.NewNop())
	require.ErrorContains(t, err, "--tls-dev-ca: ")
}

func TestOpen_DevelopmentProcessesVerifyEachOther(t *testing.T) {
	dir := t.TempDir()
	open := func(role Role, agent string) *Source {
		s, err := Open(Config{DevCA: dir}, role, agent, zap.NewNop())
		require.NoError(t, err)
		return s
	}
	var caller ID
	address := serveWith(t, open(Worker, "a").ServerCredentials(), func(who ID, _ bool) { caller = who })
	require.NoError(t, callOnce(t, open(Orchestrator, "").ClientCredentials(Worker, "a"), address))
	require.Equal(t, Orchestrator, caller.Role)
	require.Error(t, callOnce(t, open(Orchestrator, "").ClientCredentials(Worker, "b"), address))
}

// Files written by the CA prove the identity of a program that cannot use the CA itself.
func TestCA_WriteFilesProveAnIdentity(t *testing.T) {
	dir := t.TempDir()
	ca, err := OpenCA(dir)
	require.NoError(t, err)
	cfg, err := ca.WriteFiles(Worker, "a")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "worker-a.crt"), cfg.Cert)
	foreign, err := Open(cfg, Worker, "a", zap.NewNop())
	require.NoError(t, err)
	other, err := Open(Config{DevCA: dir}, Orchestrator, "", zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, callOnce(t, other.ClientCredentials(Worker, "a"), serveWith(t, foreign.ServerCredentials(), func(ID, bool) {})))
	_, err = ca.WriteFiles(Worker, "../a")
	require.Error(t, err)
	cfg, err = ca.WriteFiles(Memory, "")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "memory.key"), cfg.Key)
}
