package rig

import (
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/rig/credentials"
)

// service is a part that runs.
type service interface {
	stop() error // in order, as SIGTERM does
	kill()       // at once, as SIGKILL does, if the rig can
	wait() error // until it ends by itself
}

// launcher starts a service of the mesh. It does not wait until the service is ready.
type launcher func(m *Mesh, p Part) service

// Start starts a part that is stopped. It does not wait until the part is ready.
func (m *Mesh) Start(p Part) {
	m.t.Helper()
	switch p {
	case Etcd:
		m.Stores.Etcd.Start()
	case Redis:
		m.Stores.Redis.Start()
	default:
		if m.Credentials.InFiles() {
			m.issue(p, m.cfg.CertificateLife)
		}
		m.running[p] = m.launch(m, p)
	}
}

// Stop stops a part in order, and returns when it has ended without an error.
func (m *Mesh) Stop(p Part) {
	m.t.Helper()
	switch p {
	case Etcd:
		m.Stores.Etcd.Stop()
	case Redis:
		m.Stores.Redis.Kill() // its data is on disk; an ordered stop changes nothing
	default:
		require.NoError(m.t, m.running[p].stop(), "%s did not stop in order", p)
		delete(m.running, p)
	}
}

// Kill ends a part at once. InProcess stops services instead, and both rigs stop etcd.
func (m *Mesh) Kill(p Part) {
	m.t.Helper()
	if p == Etcd || p == Redis {
		m.Stop(p)
		return
	}
	m.running[p].kill()
	delete(m.running, p)
}

// Restart stops a part and starts it again.
func (m *Mesh) Restart(p Part) {
	m.t.Helper()
	m.Stop(p)
	m.Start(p)
}

// AwaitEnd waits until a service has ended by itself without an error.
func (m *Mesh) AwaitEnd(p Part, within time.Duration) {
	m.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- m.running[p].wait() }()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case err := <-ended:
		require.NoError(m.t, err, "%s", p)
		delete(m.running, p)
	case <-timer.C:
		require.FailNow(m.t, "a service still runs", "%s after %s", p, within)
	}
}

// Freeze stops the process of a part as SIGSTOP does, until thaw is called. It works with Binaries only.
func (m *Mesh) Freeze(p Part) (thaw func()) {
	m.t.Helper()
	process := m.process(p)
	frozen := true
	require.NoError(m.t, process.cmd.Process.Signal(syscall.SIGSTOP))
	return func() {
		if frozen {
			frozen = false
			require.NoError(m.t, process.cmd.Process.Signal(syscall.SIGCONT))
		}
	}
}

// Crash ends the process of a part with a signal that dumps core, and reports whether there is a core file. It
// works with Binaries only.
func (m *Mesh) Crash(p Part) (core bool) {
	m.t.Helper()
	process := m.process(p)
	require.NoError(m.t, process.cmd.Process.Signal(syscall.SIGABRT))
	<-process.ended
	delete(m.running, p)
	status, ok := process.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(m.t, ok)
	return status.CoreDump()
}

func (m *Mesh) process(p Part) *process {
	m.t.Helper()
	running, ok := m.running[p].(*process)
	require.True(m.t, ok, "%s is not a process", p)
	return running
}

func (m *Mesh) stopAll() {
	require.NoError(m.t, m.Conn.Close())
	for _, p := range m.programs.stopOrder() {
		if _, ok := m.running[p]; ok {
			m.Stop(p)
		}
	}
}

// issue issues a certificate to a part.
func (m *Mesh) issue(p Part, life time.Duration) {
	m.t.Helper()
	m.Credentials.Issue(string(p), m.programs.id(p), life)
}

// Renew issues new certificates of the latest CA to all running processes, and for the port that clients
// use. From its next start on, etcd uses and trusts that CA only, because it reads its certificates when
// it starts.
func (m *Mesh) Renew(life time.Duration) {
	m.t.Helper()
	for p := range m.running {
		m.issue(p, life)
	}
	m.issue(credentials.Edge, life)
	m.Stores.Etcd.Renew(m.Credentials.DevCA)
}
