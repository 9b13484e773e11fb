package process

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// noCore keeps what the process has in RAM in it: a crash leaves no core, neither in a file nor
// for a program that the kernel starts, and no process of the same user can attach to it
// (guarantee S8). Processes that it starts may have cores again.
func noCore() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("limit of core dumps: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("core dumps: %w", err)
	}
	return nil
}
