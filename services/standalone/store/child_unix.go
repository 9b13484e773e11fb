//go:build unix && !linux

package store

import "syscall"

// childAttributes keep the terminal's Ctrl-C from the child, so that the child is stopped after its users. Only
// Linux can also end the child when this process is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
