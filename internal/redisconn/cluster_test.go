package redisconn

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/test/redistest"
)

// connectionCutter closes a connection after it sent a command that contains the word, before the client reads the
// reply. So the command was executed.
type connectionCutter struct {
	net.Conn
	word string
	due  atomic.Bool
}

func (c *connectionCutter) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(c.word)) {
		c.due.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *connectionCutter) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.due.Load() {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// cutHook is a hook that wraps the connections of a node in a connectionCutter.
type cutHook struct{ word string }

func (c cutHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		return &connectionCutter{Conn: conn, word: c.word}, err
	}
}

func (cutHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (cutHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// singleNodeURL returns the URL of one node of a Cluster, for use as a single Redis.
func singleNodeURL(t *testing.T, cluster string) string {
	t.Helper()
	u, err := url.Parse(cluster)
	require.NoError(t, err)
	return "redis://" + u.Host
}

func connect(t *testing.T, cfg Config) *Conn {
	t.Helper()
	conn, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// In a Cluster, too, a write whose connection breaks is executed only once.
func TestConn_NeverRetriesAWriteInACluster(t *testing.T) {
	at := redistest.StartCluster(t)
	for name, cfg := range map[string]Config{"alone": {URL: singleNodeURL(t, at)}, "cluster": {URL: at}} {
		t.Run(name, func(t *testing.T) {
			conn, sound := connect(t, cfg), connect(t, Config{URL: at})
			switch c := conn.UniversalClient.(type) {
			case *redis.ClusterClient:
				c.OnNewNode(func(node *redis.Client) { node.AddHook(cutHook{"precious"}) })
			case *redis.Client:
				c.AddHook(cutHook{"precious"})
			}
			// The test connects to this node alone, so the key must belong to it.
			shards, err := sound.Shards(t.Context(), "precious-"+name)
			require.NoError(t, err)
			for _, shard := range shards {
				if name == "alone" && shard.Node.(*redis.Client).Options().Addr != conn.Addr() {
					continue
				}
				incr := redis.NewScript(`return redis.call('INCR', KEYS[1])`)
				for do, err := range map[string]error{
					"command":  conn.Incr(t.Context(), shard.Key+"command").Err(),
					"script":   incr.Eval(t.Context(), conn, []string{shard.Key + "script"}).Err(),
					"pipeline": pipelined(t, conn, shard.Key+"pipeline"),
				} {
					require.Error(t, err)
					require.Equal(t, failure.SystemNetwork, failure.ModeOf(conn.Failure("test", err)))
					made, err := sound.Get(t.Context(), shard.Key+do).Int()
					require.NoError(t, err)
					require.Equal(t, 1, made, do)
				}
			}
		})
	}
}

func pipelined(t *testing.T, conn *Conn, key string) error {
	t.Helper()
	_, err := conn.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		p.Get(t.Context(), key)
		p.Incr(t.Context(), key)
		return nil
	})
	return err
}

// Shards returns one key for each master, and the same keys every time.
func TestConn_ReturnsAShardForEachMaster(t *testing.T) {
	at := redistest.StartCluster(t)
	conn := connect(t, Config{URL: at})
	shards, err := conn.Shards(t.Context(), "k")
	require.NoError(t, err)
	require.Len(t, shards, 3)
	for _, shard := range shards {
		require.NoError(t, shard.Node.Set(t.Context(), shard.Key, "x", 0).Err(), "the node has the key")
	}
	again, err := connect(t, Config{URL: at}).Shards(t.Context(), "k")
	require.NoError(t, err)
	for i := range shards {
		require.Equal(t, shards[i].Key, again[i].Key)
	}
	alone, err := connect(t, Config{URL: singleNodeURL(t, at)}).Shards(t.Context(), "k")
	require.NoError(t, err)
	require.Len(t, alone, 1)
	require.Equal(t, "k", alone[0].Key)
}

// OnConnect is called before the first command on data, because a connected node may have been a replica until
// then.
func TestConn_CallsOnConnectBeforeDataCommands(t *testing.T) {
	var mu sync.Mutex
	met := map[string]int{} // by port
	conn := connect(t, Config{URL: redistest.StartCluster(t), OnConnect: func(ctx context.Context, conn *redis.Conn) error {
		port, err := conn.ConfigGet(ctx, "port").Result()
		mu.Lock()
		defer mu.Unlock()
		met[port["port"]]++
		return err
	}})
	shards, err := conn.Shards(t.Context(), "k")
	require.NoError(t, err)
	require.ErrorIs(t, conn.Get(t.Context(), shards[1].Key).Err(), redis.Nil) // the client has now learned the nodes of the Cluster
	shard := shards[0]
	require.NoError(t, shard.Node.Ping(t.Context()).Err())
	count := func() int {
		port, err := shard.Node.ConfigGet(t.Context(), "port").Result()
		require.NoError(t, err)
		mu.Lock()
		defer mu.Unlock()
		return met[port["port"]]
	}
	before := count()
	require.ErrorIs(t, conn.Get(t.Context(), shard.Key).Err(), redis.Nil)
	require.Equal(t, before+1, count())
	require.ErrorIs(t, conn.Get(t.Context(), shard.Key).Err(), redis.Nil)
	require.Equal(t, before+1, count())

	// After a redirect, OnConnect is called again, because the node may then serve other data.
	require.ErrorContains(t, shard.Node.Get(t.Context(), shards[1].Key).Err(), "MOVED")
	require.ErrorIs(t, conn.Get(t.Context(), shard.Key).Err(), redis.Nil)
	require.Equal(t, before+2, count())
}
