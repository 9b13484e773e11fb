package redisconn

import (
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/probe"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/test/redistest"
)

// boardReason returns the reason that the board would show for an error.
func boardReason(t *testing.T, err error) string {
	t.Helper()
	notServing, ok := errors.AsType[*probe.NotServingError](err)
	require.True(t, ok, "%v", err)
	require.NotContains(t, notServing.Reason, "hunter2")
	return notServing.Reason
}

func adminClient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, Username: redistest.Admin, Password: redistest.Admin, DisableIdentity: true})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func allowCommands(t *testing.T, client *redis.Client, rule ...any) {
	t.Helper()
	require.NoError(t, client.Do(t.Context(), append([]any{"ACL", "SETUSER", "memory"}, rule...)...).Err())
}

func TestConn_ServesUsersWithTheNeededPermissions(t *testing.T) {
	server := redistest.StartGuarded(t)
	needs := Permissions{Prefix: "m:", Commands: []string{"hset", "xadd", "eval", "rename", "time", "unlink"}}
	at := func(url string) *Conn { return connect(t, Config{URL: url}) }
	conn, can := at(redistest.UserURL("memory", server.Addr)), adminClient(t, server.Addr)
	require.NoError(t, conn.CheckServing(t.Context(), needs))

	for _, c := range []struct{ rule, back, want string }{
		{"-xadd", "+xadd", "does not permit the user of the service to use xadd on keys m:*; grant what users.acl says"},
		{"-@hash", "+hset", "does not permit the user of the service to use hset on keys m:*; grant what users.acl says"},
		{"-evalsha", "+evalsha", "does not permit the user of the service to use scripts on keys m:*; grant what users.acl says"},
		{"-unlink", "+unlink", "does not permit the user of the service to use unlink on keys m:*; grant what users.acl says"},
		{"resetkeys", "~m:*", "does not permit the user of the service to use scripts on keys m:*; grant what users.acl says"},
	} {
		allowCommands(t, can, c.rule)
		err := conn.CheckServing(t.Context(), needs)
		require.Equal(t, c.want, boardReason(t, err))
		require.Equal(t, failure.Unknown, failure.ModeOf(err))
		allowCommands(t, can, c.back)
		require.NoError(t, conn.CheckServing(t.Context(), needs))
	}

	long := Permissions{Prefix: "m:", Commands: slices.Repeat(needs.Commands, 3)}
	require.NoError(t, conn.CheckServing(t.Context(), long))
	err := at(redistest.UserURL("orchestrator", server.Addr)).CheckServing(t.Context(), needs)
	require.Contains(t, boardReason(t, err), "use scripts on keys m:*")
	for _, url := range []string{"redis://memory:hunter2@" + server.Addr, "redis://memory@" + server.Addr, "redis://" + server.Addr} {
		err = at(url).CheckServing(t.Context(), long)
		require.Equal(t, "does not accept the user and password of the service", boardReason(t, err), url)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestConn_CheckServingWritesNothing(t *testing.T) {
	server := redistest.StartServer(t)
	conn := connect(t, Config{URL: "redis://" + server.Addr, Replicas: 1}) // the check needs no confirmation by the replica
	changes := func() string {
		info, err := conn.InfoMap(t.Context(), "persistence").Result()
		require.NoError(t, err)
		return info["Persistence"]["rdb_changes_since_last_save"] + " " + info["Persistence"]["aof_current_size"]
	}
	before := changes()
	require.NoError(t, conn.CheckServing(t.Context(), Permissions{Prefix: "m:", Commands: []string{"set"}}))
	require.Equal(t, before, changes())
}

func TestConn_IsNotServingWhileItCannotWrite(t *testing.T) {
	master := redistest.StartServer(t, "--repl-diskless-sync-delay", "0")
	host, port, err := net.SplitHostPort(master.Addr)
	require.NoError(t, err)
	replica := connect(t, Config{URL: "redis://" + redistest.StartServer(t, "--replicaof", host+" "+port, "--appendonly", "no").Addr})
	require.Equal(t, "does not serve: READONLY", boardReason(t, replica.CheckServing(t.Context(), Permissions{Prefix: "m:"})))
	lonely := connect(t, Config{URL: "redis://" + redistest.StartServer(t, "--min-replicas-to-write", "1").Addr})
	require.Equal(t, "does not serve: NOREPLICAS", boardReason(t, lonely.CheckServing(t.Context(), Permissions{Prefix: "m:"})))
}

// Redis is serving only when every master permits what is needed, because each node of a Cluster has its own
// users.
func TestConn_ServesWhenEachMasterDoes(t *testing.T) {
	conn := connect(t, Config{URL: redistest.StartCluster(t)})
	needs := Permissions{Prefix: "m:", Commands: []string{"hset"}}
	require.NoError(t, conn.CheckServing(t.Context(), needs))
	shards, err := conn.Shards(t.Context(), "m:probe")
	require.NoError(t, err)
	last := shards[len(shards)-1].Node
	require.NoError(t, last.(*redis.Client).Do(t.Context(), "ACL", "SETUSER", "default", "-hset").Err())
	require.Contains(t, boardReason(t, conn.CheckServing(t.Context(), needs)), "use hset on keys m:*")
}
