//go:build !linux

package redistest

import "syscall"

// bound does nothing here: only Linux can end a child with its parent.
func bound() *syscall.SysProcAttr { return nil }
