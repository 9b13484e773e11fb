package redistest

import "syscall"

// bound ends a child with the process that started it, however that ended: one that fuzzes is
// killed in the middle of its work.
func bound() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
