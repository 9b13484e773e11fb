package store

import "syscall"

// childSysProcAttr returns attributes that protect the child from the terminal's Ctrl-C, so that it can be stopped
// after its users. The kernel ends the child when this process is killed.
func childSysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
