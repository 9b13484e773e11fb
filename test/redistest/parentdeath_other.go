//go:build !linux

package redistest

import "syscall"

// dieWithParent returns nil, because only Linux can end a child process together with its parent.
func dieWithParent() *syscall.SysProcAttr { return nil }
