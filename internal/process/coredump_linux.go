package process

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// disableCoreDumps prevents core dumps, so that a crash writes no memory of the process to disk. It also keeps
// other processes of the same user from attaching to the process (guarantee S8). Child processes may dump core
// again.
func disableCoreDumps() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("limit of core dumps: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("core dumps: %w", err)
	}
	return nil
}
