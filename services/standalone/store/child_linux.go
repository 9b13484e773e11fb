package store

import "syscall"

// childAttributes keep the terminal's Ctrl-C from the child, so that the child is stopped after its users. The
// child ends when this process is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
