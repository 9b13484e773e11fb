package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/identity"
	"github.com/troupe-dev/troupe/test/etcdtest"
)

func TestProvision_MakesUsersOfWhatIsDeclared(t *testing.T) {
	dir := t.TempDir()
	etcd := etcdtest.Guarded(t, dir, "gone")
	ca, err := identity.OpenCA(dir)
	require.NoError(t, err)
	root, err := ca.ServerFiles(t.TempDir(), "root")
	require.NoError(t, err)
	var out, errs bytes.Buffer
	args := []string{
		"provision", "etcd", "--agents", "../../agents/research-assistant", "--agent", "hello",
		"--etcd", etcd.Endpoints()[0], "--etcd-ca", root.CA, "--etcd-cert", root.Cert, "--etcd-key", root.Key,
	}
	require.Zero(t, run(t.Context(), args, terminal{out: &out, err: &errs}), errs.String())
	require.Equal(t, "etcd knows orchestrator, memory, worker/hello, worker/coordinator, worker/clarification, worker/research, worker/synthesis.\n"+
		"It also knows worker/gone, which nobody declares; remove each with etcdctl user delete.\n", out.String())
	require.True(t, etcdtest.MayWrite(t, etcd.As("worker/hello"), "/troupe/v1/reg/hello/1"))

	worker, err := ca.Files(identity.Worker, "research")
	require.NoError(t, err)
	args[len(args)-3], args[len(args)-1] = worker.Cert, worker.Key
	require.Equal(t, 1, run(t.Context(), args, terminal{out: &out, err: &errs}))
	require.Contains(t, errs.String(), "permission denied")
}
