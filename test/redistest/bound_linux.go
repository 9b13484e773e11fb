package redistest

import "syscall"

// bound makes a child end with this process, however it ends: fuzzing kills processes at any time.
func bound() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
