//go:build chaos

package chaos

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// busyBytes is what is written between two fsyncs of a busy disk.
const busyBytes = 8 << 20

// keepDiskBusy writes to the disk of Redis until the test ends, so that its fsyncs take
// long: while one is under way, a Redis that writes every second holds writes back that it
// has acknowledged.
func (r *run) keepDiskBusy() {
	r.t.Helper()
	file, err := os.Create(filepath.Join(r.redisFolder(), "busy"))
	require.NoError(r.t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer file.Close()
		block := make([]byte, busyBytes)
		for r.ctx.Err() == nil {
			if _, err := file.WriteAt(block, 0); err != nil || file.Sync() != nil {
				return
			}
		}
	}()
	r.t.Cleanup(func() { r.cancel(); <-ended })
}

// syncTime is how long to wait for an fsync, of which there is one a second.
const syncTime = 3 * time.Second

// awaitSync returns while Redis waits for an fsync, and has acknowledged writes meanwhile.
func (r *run) awaitSync() {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.Redis.Addr)
	require.NoError(r.t, err)
	defer conn.Close()
	lines := bufio.NewReader(conn)
	for over := time.Now().Add(syncTime); time.Now().Before(over); {
		_, err := conn.Write([]byte("INFO persistence\r\n"))
		require.NoError(r.t, err)
		for line := ""; !strings.HasPrefix(line, "aof_delayed_fsync"); {
			line, err = lines.ReadString('\n')
			require.NoError(r.t, err)
			if strings.HasPrefix(line, "aof_pending_bio_fsync:1") {
				r.pause(minPause / 5)
				return
			}
		}
	}
}
