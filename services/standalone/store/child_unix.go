//go:build unix && !linux

package store

import "syscall"

// childSysProcAttr returns attributes that protect the child from the terminal's Ctrl-C, so that it can be stopped
// after its users. Only Linux can also end the child when this process is killed.
func childSysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
