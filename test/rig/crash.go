package rig

import (
	"syscall"

	"github.com/stretchr/testify/require"
)

// Crash ends a process of Binaries as a crash of it does, and reports whether it left a core.
func (m *Mesh) Crash(p Part) (core bool) {
	m.t.Helper()
	c, ok := m.running[p].(*child)
	require.True(m.t, ok, "%s is no process", p)
	require.NoError(m.t, c.cmd.Process.Signal(syscall.SIGABRT))
	<-c.ended
	delete(m.running, p)
	status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(m.t, ok)
	return status.CoreDump()
}
