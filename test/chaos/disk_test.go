//go:build chaos

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
)

// syncTime is how long to wait for an fsync. Redis runs one per second.
const syncTime = 3 * time.Second

// heldTurns is how many turns Redis must acknowledge while its disk is blocked.
const heldTurns = 10

// blockDisk makes Redis wait for its disk, as on a machine with other writers. It returns once Redis has
// acknowledged turns in the meantime. Redis delays acknowledgements for up to two seconds while an fsync runs. To
// be independent of the disk's speed, the test stops the thread that syncs until Redis is killed.
func (r *run) blockDisk() {
	r.t.Helper()
	require.NoError(r.t, freezeThread(r.findSyncThread()))
	r.await("an fsync that does not end", syncTime, func() bool { return r.redisInfo("aof_pending_bio_fsync") == "1" })
	turns := r.acknowledgedTurns()
	r.await("turns that are acknowledged meanwhile", syncTime, func() bool { return r.acknowledgedTurns() >= turns+heldTurns })
}

// findSyncThread returns the id of the Redis thread that syncs the append-only file.
func (r *run) findSyncThread() int {
	r.t.Helper()
	threads, err := filepath.Glob(filepath.Join("/proc", r.redisInfo("process_id"), "task", "*", "comm"))
	require.NoError(r.t, err)
	for _, path := range threads {
		name, err := os.ReadFile(path)
		require.NoError(r.t, err)
		if !strings.HasPrefix(string(name), "bio_aof") {
			continue
		}
		var id int
		_, err = fmt.Sscan(filepath.Base(filepath.Dir(path)), &id)
		require.NoError(r.t, err)
		return id
	}
	require.Fail(r.t, "Redis has no thread that syncs")
	return 0
}

// freezeThread stops one thread of another process until that process is killed.
func freezeThread(thread int) error {
	stopped := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // ptrace belongs to a thread
		err := syscall.PtraceAttach(thread)
		if err == nil {
			_, err = syscall.Wait4(thread, nil, syscall.WALL, nil)
		}
		stopped <- err
		if err == nil {
			_, _ = syscall.Wait4(thread, nil, syscall.WALL, nil) // otherwise it stays a zombie
		}
	}()
	return <-stopped
}

// redisInfo returns one field of Redis's INFO output.
func (r *run) redisInfo(field string) string {
	r.t.Helper()
	for line := range strings.Lines(r.redisCommand("info", "all")) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	require.Fail(r.t, "Redis does not tell", field)
	return ""
}
