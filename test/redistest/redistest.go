// Package redistest runs a real redis-server for a test, as durable as in production: every acknowledged write is
// on disk. The server is a child process on a free loopback port. Its data is in a temporary folder of the test.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/test/loopback"
)

// waitTimeout is how long a server may take to start, even on a busy machine.
const waitTimeout = 20 * time.Second

// Server is a redis-server that a test may kill and restart.
type Server struct {
	// Addr is the server's address, host:port. It stays the same after a restart.
	Addr string

	t     testing.TB
	dir   string
	flags []string
	child *exec.Cmd
}

// Start runs a redis-server until the test ends and returns its address, host:port.
func Start(t testing.TB) string {
	t.Helper()
	return StartServer(t).Addr
}

// StartServer runs a redis-server with additional flags until the test ends. The test fails if redis-server is not
// on PATH.
func StartServer(t testing.TB, flags ...string) *Server {
	t.Helper()
	s := ReserveServer(t, flags...)
	s.Start()
	return s
}

// ReserveServer returns a server that has not been started. Its port is free now.
func ReserveServer(t testing.TB, flags ...string) *Server {
	t.Helper()
	s := &Server{Addr: loopback.Address(t), t: t, dir: t.TempDir(), flags: flags}
	t.Cleanup(s.Kill)
	return s
}

// Start runs the server on its existing data and returns once it responds.
func (s *Server) Start() {
	s.t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		s.t.Fatalf("redistest: these tests need a redis-server on PATH (apt-get install redis-server): %v", err)
	}
	_, port, _ := net.SplitHostPort(s.Addr)
	logfile := filepath.Join(s.dir, "redis.log")
	args := slices.Concat([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--logfile", logfile,
		"--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "no",
		"--save", "", "--maxmemory-policy", "noeviction",
	}, s.flags)
	s.child = exec.Command(program, args...)
	s.child.SysProcAttr = dieWithParent()
	for _, pipe := range []int{3, 4} { // pipes of a fuzzing process, whose parent waits until they are closed
		syscall.CloseOnExec(pipe)
	}
	if err := s.child.Start(); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
	if err := s.awaitPong(); err != nil {
		log, _ := os.ReadFile(logfile)
		s.t.Fatalf("redistest: redis-server did not come up within %s: %v\n%s", waitTimeout, err, log)
	}
}

// Dir returns the folder with the server's data.
func (s *Server) Dir() string { return s.dir }

// Kill kills the server with SIGKILL. A second call does nothing.
func (s *Server) Kill() {
	if s.child == nil {
		return
	}
	_ = s.child.Process.Kill()
	_ = s.child.Wait() // the error only says that it was killed
	s.child = nil
}

// awaitPong pings the server until it responds, which it does once its data is loaded.
func (s *Server) awaitPong() error {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ping(ctx, s.Addr)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func ping(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, "+PONG") && !strings.HasPrefix(line, "-NOAUTH") { // NOAUTH is the answer of a server with users
		return errors.New(strings.TrimSpace(line))
	}
	return nil
}
