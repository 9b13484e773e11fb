package redisstore

import (
	"context"
	"crypto/rand"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/test/redistest"
)

// openReplicatedStore returns a store of durability class D2 whose Redis has one replica.
func openReplicatedStore(t *testing.T, patience time.Duration, flags ...string) (*Store, *redistest.Server) {
	t.Helper()
	master := redistest.StartServer(t, append(flags, "--repl-diskless-sync-delay", "0")...)
	replica := addReplica(t, master.Addr)
	s, err := New(Config{
		URL: "redis://" + master.Addr, Durability: redisconn.D2, ReplicaTime: patience,
		MaxMessages: memorytest.MaxMessages, MaxBytes: memorytest.MaxBytes,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, replica
}

// addReplica starts a replica of a Redis server and returns once the replica is connected.
func addReplica(t *testing.T, master string, flags ...string) *redistest.Server {
	t.Helper()
	host, port, err := net.SplitHostPort(master)
	require.NoError(t, err)
	// The replica writes no append-only file, because the child process that writes the file would survive a kill
	// of the replica.
	replica := redistest.StartServer(t, append(flags, "--replicaof", host+" "+port, "--appendonly", "no")...)
	node := redis.NewClient(&redis.Options{Addr: replica.Addr, DisableIdentity: true})
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	eventually(t, func(ctx context.Context) bool {
		info, err := node.InfoMap(ctx, "replication").Result()
		return err == nil && info["Replication"]["master_link_status"] == "up"
	})
	return replica
}

func TestStore_DurabilityD2RequiresReplicas(t *testing.T) {
	t.Parallel()
	s, _ := openReplicatedStore(t, 0)
	require.ErrorContains(t, s.CheckDurability(t.Context()), "set min-replicas-to-write 1")
}

// In durability class D2, acknowledged writes are on the replica. Writes that are not acknowledged can be
// repeated.
func TestStore_WritesWaitForTheReplica(t *testing.T) {
	t.Parallel()
	s, replica := openReplicatedStore(t, time.Second)
	b := newBegin("s1", "t1")
	begun, err := s.BeginTurn(t.Context(), b)
	for failure.Is(err, failure.SystemNetwork) { // the replica may be slow on a busy machine, so the call is repeated
		begun, err = s.BeginTurn(t.Context(), b)
	}
	require.NoError(t, err)
	copied := openStore(t, "redis://"+replica.Addr)
	found, err := copied.GetSession(t.Context(), b.Ref)
	require.NoError(t, err)
	require.Equal(t, session.Busy, found.State)
	_, err = copied.BeginTurn(t.Context(), newBegin("s2", "t1"))
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "a replica takes no writes: %v", err)

	replica.Kill()
	_, err = s.CommitStep(t.Context(), newCommit(b, begun.Turn))
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "error: %v", err)
	require.ErrorContains(t, err, "not replicated in time; repeat")
	messages, err := s.LoadHistory(t.Context(), b.Ref, 0, 10)
	require.NoError(t, err, "reads go on")
	require.Len(t, messages, 2)
	_, err = s.CommitStep(t.Context(), newCommit(b, begun.Turn))
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "a repeat is no proof: %v", err)

	replica.Start()
	eventually(t, func(ctx context.Context) bool {
		_, err = s.CommitStep(ctx, newCommit(b, begun.Turn))
		return err == nil
	})
	messages, err = copied.LoadHistory(t.Context(), b.Ref, 0, 10)
	require.NoError(t, err)
	require.Len(t, messages, 2)
}

func TestStore_RejectsWritesWithoutReplicas(t *testing.T) {
	t.Parallel()
	s, replica := openReplicatedStore(t, 0, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
	replica.Kill()
	eventually(t, func(ctx context.Context) bool {
		_, err := s.BeginTurn(ctx, newBegin(rand.Text(), "t1"))
		require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "error: %v", err)
		return strings.Contains(err.Error(), "NOREPLICAS")
	})
}
