package process

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// noCore prevents core dumps, so that a crash writes nothing of the process's memory to a file or to a program
// that the kernel starts. No process of the same user can attach to it either (guarantee S8). Processes that it
// starts may dump core again.
func noCore() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("limit of core dumps: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("core dumps: %w", err)
	}
	return nil
}
