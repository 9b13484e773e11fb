//go:build !linux

package redistest

import "syscall"

// bound is for Linux; elsewhere a child may outlive a process that was killed.
func bound() *syscall.SysProcAttr { return nil }
