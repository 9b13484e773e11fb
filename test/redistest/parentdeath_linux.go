package redistest

import "syscall"

// dieWithParent returns attributes that end a child process when this process ends in any way. Fuzzing kills its
// processes at any time.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
