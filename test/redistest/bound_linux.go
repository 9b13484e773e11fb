package redistest

import "syscall"

// dieWithParent ends a child process when this process ends in any way. Fuzzing kills processes at any time.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
