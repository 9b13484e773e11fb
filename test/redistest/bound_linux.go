package redistest

import "syscall"

// dieWithParent makes a child end with this process, however it ends: fuzzing kills processes at any time.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
