// Package loopback reserves addresses for servers that a test stops and starts again.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// These ports are outside the range of ephemeral ports and below the ports that troupe dev chooses, so that no other
// process uses them while a server is down.
const (
	firstPort = 10_000
	portCount = 10_000
)

var (
	startOffset  = rand.Uint32N(portCount) // differs between processes, because other packages are tested at the same time
	addressCount atomic.Uint32
)

// locks are the locked files that reserve the ports for this process. They stay open until the process ends.
var (
	locksMu sync.Mutex
	locks   []*os.File
)

// Address returns a loopback address, host:port, at which nothing listens. No other call returns the same address,
// in this process or in a process that runs at the same time. A server can therefore stop and start at it while
// other servers are tested. Address itself never listens: a process that another goroutine starts at the same moment
// would inherit the listener, and keep the port until it executes its program.
func Address(t testing.TB) string {
	t.Helper()
	for range portCount {
		port := firstPort + (startOffset+addressCount.Add(1))%portCount
		if !reservePort(t, port) {
			continue
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			_ = conn.Close() // a program other than a test uses the port
			continue
		}
		return address
	}
	t.Fatal("loopback: no free port")
	return ""
}

// reservePort reserves a port for this process and returns false if another process has reserved it.
func reservePort(t testing.TB, port uint32) bool {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "troupe-test-ports") //nolint:usetesting // all test processes share it
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return false
	}
	locksMu.Lock()
	defer locksMu.Unlock()
	locks = append(locks, file)
	return true
}
