package redisconn

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// noRetryHook keeps the client from sending a command twice. A cluster client repeats a command whose connection
// broke, whatever its MaxRetries, so a write could happen twice. A redirected command is still sent again, because
// the first node has not executed it.
type noRetryHook struct{}

// noRetryCmd is a command that the client does not retry.
type noRetryCmd struct{ redis.Cmder }

func (noRetryCmd) NoRetry() bool { return true }

// DialHook implements redis.Hook.
func (noRetryHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (noRetryHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return next(ctx, noRetryCmd{cmd}) }
}

// ProcessPipelineHook implements redis.Hook.
func (noRetryHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		marked := make([]redis.Cmder, len(cmds))
		for i, cmd := range cmds {
			marked[i] = noRetryCmd{cmd}
		}
		return next(ctx, marked)
	}
}

// masterHook calls OnConnect for a node of a Cluster when the node starts to serve data. A replica can become a
// master without a new connection. So the hook calls OnConnect before the first command on data, and again after
// the node redirected a command.
type masterHook struct {
	node            *redis.Client
	onConnect       func(ctx context.Context, conn *redis.Conn) error
	calledOnConnect *atomic.Bool // whether OnConnect was called since the node began to serve data
}

// DialHook implements redis.Hook.
func (m masterHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (m masterHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := m.callOnConnect(ctx, cmd); err != nil {
			return err
		}
		err := next(ctx, cmd)
		m.noteError(err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (m masterHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := m.callOnConnect(ctx, cmds...); err != nil {
			return err
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			m.noteError(cmd.Err())
		}
		return err
	}
}

// datalessCommands are the commands that do not read or write data, so that a replica replies like its master.
var datalessCommands = map[string]bool{
	"cluster": true, "command": true, "info": true, "config": true, "ping": true, "client": true, "hello": true, "auth": true,
}

// callOnConnect calls OnConnect before the first command on data.
func (m masterHook) callOnConnect(ctx context.Context, cmds ...redis.Cmder) error {
	if m.calledOnConnect.Load() {
		return nil
	}
	for _, cmd := range cmds {
		if datalessCommands[cmd.Name()] {
			continue
		}
		conn := m.node.Conn()
		err := m.onConnect(ctx, conn)
		_ = conn.Close() // this returns it to the pool
		if err == nil {
			m.calledOnConnect.Store(true)
		}
		return err
	}
	return nil
}

// noteError notes, by the error of a command, that the node no longer serves data.
func (m masterHook) noteError(err error) {
	if _, moved := redis.IsMovedError(err); moved || redis.IsReadOnlyError(err) {
		m.calledOnConnect.Store(false)
	}
}

// Shard is a node that takes writes, and a key that belongs to it.
type Shard struct {
	Key  string
	Node redis.Cmdable
}

// maxShardKeys bounds the search for keys. One of the first few keys belongs to each node, unless a node has
// hardly any slots.
const maxShardKeys = 1 << 18

// Shards returns each node that takes writes, with a key that belongs to it. The key is name, or in a Cluster
// name:{n} with the smallest n that belongs to the node.
func (c *Conn) Shards(ctx context.Context, name string) ([]Shard, error) {
	cluster, ok := c.UniversalClient.(*redis.ClusterClient)
	if !ok {
		return []Shard{{name, c.UniversalClient}}, nil
	}
	var masters atomic.Int64
	if err := cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { masters.Add(1); return nil }); err != nil {
		return nil, err
	}
	var shards []Shard
	seen := map[*redis.Client]bool{}
	for n := 0; int64(len(seen)) < masters.Load(); n++ {
		key := fmt.Sprintf("%s:{%d}", name, n)
		node, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		if n == maxShardKeys {
			return nil, fmt.Errorf("redis at %s: only %d of %d masters have a key; the Cluster may be changing its nodes", c.addr, len(seen), masters.Load())
		}
		if !seen[node] {
			seen[node] = true
			shards = append(shards, Shard{key, node})
		}
	}
	if len(shards) == 0 {
		return nil, fmt.Errorf("redis at %s is a Cluster without a node that takes writes", c.addr)
	}
	return shards, nil
}
