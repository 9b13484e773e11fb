package redisstore

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/test/redistest"
)

// A Redis server without free memory rejects a write as a whole (guarantee F8).
func TestStore_FullRedisWritesNothing(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	require.NoError(t, s.db.ConfigSet(t.Context(), "maxmemory", "1").Err())
	b := newBegin("s1", "t1")
	_, err := s.BeginTurn(t.Context(), b)
	require.Equal(t, failure.ResourceMemory, failure.ModeOf(err), "error: %v", err)

	require.NoError(t, s.db.ConfigSet(t.Context(), "maxmemory", "0").Err())
	_, err = s.GetSession(t.Context(), b.Ref)
	require.Equal(t, failure.NotFound, failure.ModeOf(err))
}

func TestStore_RecoversFromARedisOutage(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	s := openStore(t, "redis://"+server.Addr)
	_, err := s.BeginTurn(t.Context(), newBegin("s1", "t1"))
	require.NoError(t, err)

	server.Kill()
	_, err = s.BeginTurn(t.Context(), newBegin("s1", "t1"))
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "error: %v", err)
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(s.Ping(t.Context())))

	server.Start()
	eventually(t, func(ctx context.Context) bool { return s.Ping(ctx) == nil })
	begun, err := s.BeginTurn(t.Context(), newBegin("s1", "t1"))
	require.NoError(t, err)
	require.Equal(t, session.OutcomeOpen, begun.Turn.Outcome)
}

func TestStore_KeepsContextErrors(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.BeginTurn(ctx, newBegin("s1", "t1"))
	require.ErrorIs(t, err, context.Canceled)
}

// Each error reply of Redis maps to one failure mode. Clients do not receive its text.
func TestStore_MapsRedisErrors(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]failure.Mode{
		"LOADING Redis is loading the dataset in memory":          failure.SystemNetwork,
		"READONLY You can't write against a read only replica.":   failure.SystemNetwork,
		"CLUSTERDOWN The cluster is down":                         failure.SystemNetwork,
		"MASTERDOWN Link with MASTER is down":                     failure.SystemNetwork,
		"TRYAGAIN Multiple keys request during rehashing of slot": failure.SystemNetwork,
		"MOVED 7 127.0.0.1:1":                                     failure.SystemNetwork,
		"ASK 7 127.0.0.1:1":                                       failure.SystemNetwork,
		"NOREPLICAS Not enough good replicas to write.":           failure.SystemNetwork,
		"ERR max number of clients reached":                       failure.SystemNetwork,
		"WRONGPASS invalid username-password pair":                failure.Unknown,
		"NOAUTH Authentication required.":                         failure.Unknown,
		"BUSY Redis is busy running a script.":                    failure.SystemNetwork,
		"OOM command not allowed when used memory > 'maxmemory'.": failure.ResourceMemory,
		"MISCONF Errors writing to the AOF file":                  failure.SystemDisk,
		"NOPERM this user has no permissions":                     failure.Unknown,
	} {
		t.Run(strings.Fields(reply)[0], func(t *testing.T) {
			s := openStore(t, "redis://"+serveErrorReply(t, reply))
			_, err := s.BeginTurn(t.Context(), newBegin("s1", "t1"))
			require.Equal(t, want, failure.ModeOf(err), "error: %v", err)
			require.NotContains(t, grpcfailure.ToProto(err).GetMessage(), reply)
			require.ErrorContains(t, err, reply)
		})
	}
}

func TestStore_UnresponsiveRedisCausesATimeout(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer lis.Close()
	s := openStore(t, "redis://"+lis.Addr().String()+"?read_timeout=50ms")
	_, err = s.BeginTurn(t.Context(), newBegin("s1", "t1"))
	require.Equal(t, failure.SystemTimeout, failure.ModeOf(err), "error: %v", err)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = s.BeginTurn(ctx, newBegin("s1", "t1"))
	require.Error(t, err)
	require.Contains(t, grpcfailure.ToProto(err).GetMode().String(), "SYSTEM_TIMEOUT")
}

func TestNew_ErrorsDoNotContainThePassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://:hunter2@localhost:six/0", "http://:hunter2@localhost", "redis://:hunter2@localhost:6379/x",
		"redis://:hunter2@localhost:6379?addr=x&pool_size=many", "redis://:hunter2@[::1",
	} {
		_, err := New(Config{URL: url})
		require.ErrorContains(t, err, "redis://[user:password@]host:port/db", url)
		require.NotContains(t, err.Error(), "hunter2")
	}
	s, err := New(Config{URL: "redis://:hunter2@localhost:6379/0"})
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, "localhost:6379", s.Addr())
}

func TestStore_CheckDurabilityNamesTheSetting(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"--appendonly no":                   "set appendonly yes",
		"--appendfsync everysec":            "set appendfsync always",
		"--no-appendfsync-on-rewrite yes":   "set no-appendfsync-on-rewrite no",
		"--maxmemory-policy allkeys-lru":    "set maxmemory-policy noeviction",
		"--rename-command INFO forbidden":   "does not say its version",
		"--rename-command CONFIG forbidden": "does not say how it persists",
	} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, "redis://"+redistest.StartServer(t, strings.Fields(flags)...).Addr)
			err := s.CheckDurability(t.Context())
			require.ErrorContains(t, err, want)
			require.Equal(t, strings.Contains(want, "say"), errors.Is(err, redisconn.ErrDurabilityUnknown))
		})
	}
}

// serveErrorReply starts a server that sends reply as the error of every script call, and returns its address.
func serveErrorReply(t *testing.T, reply string) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var conns sync.WaitGroup
	t.Cleanup(func() {
		require.NoError(t, lis.Close())
		conns.Wait()
	})
	conns.Go(func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { serveConn(conn, reply) })
		}
	})
	return lis.Addr().String()
}

func serveConn(conn net.Conn, reply string) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		switch strings.ToUpper(lines.Text()) {
		case "HELLO":
			_, _ = io.WriteString(conn, "-ERR unknown command 'HELLO'\r\n")
		case "EVALSHA":
			_, _ = io.WriteString(conn, "-"+reply+"\r\n")
		}
	}
}
