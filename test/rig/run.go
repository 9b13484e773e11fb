package rig

import (
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/rig/credentials"
)

// service is a running part.
type service interface {
	stop() error // stops gracefully, as SIGTERM does
	kill()       // ends at once, as SIGKILL does, if the rig can do that
	wait() error // waits until the service ends by itself
}

// launcher starts a service and does not wait until it is ready.
type launcher func(m *Mesh, p Part) service

// Start starts a stopped part. It does not wait until the part is ready.
func (m *Mesh) Start(p Part) {
	m.t.Helper()
	switch p {
	case Etcd:
		m.Stores.Etcd.Start()
	case Redis:
		m.Stores.Redis.Start()
	default:
		if m.Credentials.UsesFiles() {
			m.issueCertificate(p, m.cfg.CertificateLifetime)
		}
		m.running[p] = m.launch(m, p)
	}
}

// Stop stops a part gracefully and requires that it ends without an error.
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

// Kill ends a part at once. With StartInProcess it stops services gracefully instead. Etcd is always stopped
// gracefully.
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

// AwaitExit waits until a service ends by itself and requires that it reports no error.
func (m *Mesh) AwaitExit(p Part, within time.Duration) {
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

// Freeze stops the process of a part with SIGSTOP until thaw is called. It works only with StartBinaries.
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

// Crash ends the process of a part with a signal that dumps core, and reports whether a core file exists. It works
// only with StartBinaries.
func (m *Mesh) Crash(p Part) (core bool) {
	m.t.Helper()
	process := m.process(p)
	require.NoError(m.t, process.cmd.Process.Signal(syscall.SIGABRT))
	<-process.done
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

// issueCertificate issues a certificate to a part.
func (m *Mesh) issueCertificate(p Part, life time.Duration) {
	m.t.Helper()
	m.Credentials.IssueCertificate(string(p), m.programs.identityOf(p), life)
}

// RenewCertificates issues new certificates of the latest CA to all running processes and to the client port. From
// its next start on, etcd uses and trusts only that CA, because it reads its certificates when it starts.
func (m *Mesh) RenewCertificates(life time.Duration) {
	m.t.Helper()
	for p := range m.running {
		m.issueCertificate(p, life)
	}
	m.issueCertificate(credentials.Edge, life)
	m.Stores.Etcd.RenewCertificate(m.Credentials.DevCA)
}
