package operate

import (
	"bytes"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/test/etcdtest"
)

func TestProvision_CreatesUsersOfDeclaredAgents(t *testing.T) {
	dir := t.TempDir()
	etcd := etcdtest.StartGuarded(t, dir, "gone")
	ca, err := identity.OpenCA(dir)
	require.NoError(t, err)
	root, err := ca.WriteServerFiles(t.TempDir(), "root")
	require.NoError(t, err)
	var out, errs bytes.Buffer
	args := []string{
		"provision", "etcd", "--agents", "../../../../agents/research-assistant", "--agent", "hello",
		"--etcd", etcd.Endpoints()[0], "--etcd-ca", root.CA, "--etcd-cert", root.Cert, "--etcd-key", root.Key,
	}
	require.Zero(t, run(t.Context(), args, console.Terminal{Out: &out, Err: &errs}), errs.String())
	require.Equal(t, "etcd knows orchestrator, memory, worker/hello, worker/coordinator, worker/clarification, worker/research, worker/synthesis.\n"+
		"It also knows worker/gone, which no file declares; remove each with etcdctl user delete.\n", out.String())
	require.True(t, etcdtest.MayWrite(t, etcd.ClientAs("worker/hello"), "/troupe/v1/reg/hello/1"))

	worker, err := ca.WriteFiles(identity.Worker, "research")
	require.NoError(t, err)
	args[len(args)-3], args[len(args)-1] = worker.Cert, worker.Key
	require.Equal(t, 1, run(t.Context(), args, console.Terminal{Out: &out, Err: &errs}))
	require.Contains(t, errs.String(), "permission denied")
}

// When etcd and the command do not trust each other, the error says why and which flag to check.
func TestProvision_ExplainsRejectedConnection(t *testing.T) {
	keys := func(dir string) identity.TLSFiles {
		ca, err := identity.OpenCA(dir)
		require.NoError(t, err)
		root, err := ca.WriteServerFiles(t.TempDir(), "root")
		require.NoError(t, err)
		return root
	}
	dir := t.TempDir()
	etcd := etcdtest.StartGuarded(t, dir)
	ours, theirs := keys(dir), keys(t.TempDir())
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := "https://" + lis.Addr().String()
	require.NoError(t, lis.Close())
	there := etcd.Endpoints()[0]
	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		"another CA": {
			args: []string{"--etcd", there, "--etcd-ca", theirs.CA, "--etcd-cert", ours.Cert, "--etcd-key", ours.Key},
			says: []string{"--etcd-ca", "certificate signed by unknown authority"},
		},
		"no CA": {
			args: []string{"--etcd", there, "--etcd-cert", ours.Cert, "--etcd-key", ours.Key},
			says: []string{"--etcd-ca", "certificate signed by unknown authority"},
		},
		"a certificate of another CA": {
			args: []string{"--etcd", there, "--etcd-ca", ours.CA, "--etcd-cert", theirs.Cert, "--etcd-key", theirs.Key},
			says: []string{"--etcd-cert", "tls: "},
		},
		"no certificate": {
			args: []string{"--etcd", there, "--etcd-ca", ours.CA},
			says: []string{"--etcd-cert", "tls: certificate required"},
		},
		"nobody there": {
			args: []string{"--etcd", nobody, "--etcd-ca", ours.CA, "--etcd-cert", ours.Cert, "--etcd-key", ours.Key, "--timeout", "1s"},
			says: []string{"--etcd: ", "connection refused"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var told bytes.Buffer
			args := append([]string{"provision", "etcd", "--agent", "hello"}, c.args...)
			require.Equal(t, process.ExitError, run(t.Context(), args, console.Terminal{Out: &told, Err: &told}))
			for _, part := range c.says {
				require.Contains(t, told.String(), part)
			}
			require.NotContains(t, told.String(), "deadline exceeded")
			require.NotContains(t, told.String(), "rpc error")
		})
	}
}
