package rig

import (
	"sync"
	"syscall"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// registration is the key of an instance, as docs/write-a-worker-in-any-language.md has it.
func registration(agent, id string) string { return "/troupe/v1/reg/" + agent + "/" + id }

// etcdClient is made once: every client has a connection of its own.
func (m *Mesh) etcdClient() *clientv3.Client {
	m.t.Helper()
	if m.client == nil {
		m.client = m.etcd.Client()
	}
	return m.client
}

// RevokeLease takes an instance's lease away, as an operator could with etcdctl.
func (m *Mesh) RevokeLease(agent, id string) {
	m.t.Helper()
	client := m.etcdClient()
	stored, err := client.Get(m.t.Context(), registration(agent, id))
	require.NoError(m.t, err)
	require.Len(m.t, stored.Kvs, 1)
	_, err = client.Revoke(m.t.Context(), clientv3.LeaseID(stored.Kvs[0].Lease))
	require.NoError(m.t, err)
}

// LeaseIsGone reports whether etcd has removed the registration of an instance.
func (m *Mesh) LeaseIsGone(agent, id string) bool {
	m.t.Helper()
	stored, err := m.etcdClient().Get(m.t.Context(), registration(agent, id), clientv3.WithCountOnly())
	require.NoError(m.t, err)
	return stored.Count == 0
}

// Freeze stops the process of a part as SIGSTOP does, until thaw, which may be called
// again. Only for binaries.
func (m *Mesh) Freeze(p Part) (thaw func()) {
	m.t.Helper()
	process := m.running[p].(*child).cmd.Process
	require.NoError(m.t, process.Signal(syscall.SIGSTOP))
	return sync.OnceFunc(func() { require.NoError(m.t, process.Signal(syscall.SIGCONT)) })
}
