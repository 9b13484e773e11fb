package store

import "syscall"

// childAttributes keep the terminal's Ctrl-C from the child, so that it is stopped after
// those who need it, and end it when this process is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
