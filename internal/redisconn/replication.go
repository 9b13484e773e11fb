package redisconn

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// defaultReplicaTime is the default value of Config.ReplicaTime.
const defaultReplicaTime = 200 * time.Millisecond

// errNotReplicated reports a write that took effect but that too few replicas confirmed.
var errNotReplicated = errors.New("too few replicas have the write")

// readCommands are the commands that need no confirmation by replicas.
var readCommands = map[string]bool{
	"get": true, "getrange": true, "exists": true, "hget": true, "hgetall": true, "hmget": true, "smembers": true,
	"xrange": true, "xrevrange": true, "zrange": true, "zrevrange": true, "zrangebyscore": true, "zrevrangebyscore": true,
	"zscore": true, "zcard": true, "time": true, "ttl": true, "pttl": true, "eval_ro": true, "evalsha_ro": true,
	"ping": true, "info": true, "config": true, "cluster": true, "wait": true, "hello": true, "auth": true, "select": true, "client": true,
}

// replicationHook makes each write wait until enough replicas confirm it. WAIT counts the replicas that have the
// last write of its own connection, so WAIT is sent in the same pipeline, after the write.
type replicationHook struct {
	node     *redis.Client
	replicas int
	wait     time.Duration
}

// DialHook implements redis.Hook.
func (r replicationHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook. It sends a single write as a pipeline.
func (r replicationHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if readCommands[cmd.Name()] || ctx.Value(readOnlyKey{}) != nil {
			return next(ctx, cmd)
		}
		pipe := r.node.Pipeline()
		_ = pipe.Process(ctx, cmd) // this only queues the command
		_, err := pipe.Exec(ctx)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (r replicationHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var writes []redis.Cmder
		for _, cmd := range cmds {
			if !readCommands[cmd.Name()] {
				writes = append(writes, cmd)
			}
		}
		if len(writes) == 0 {
			return next(ctx, cmds)
		}
		if cmds[0].Name() == "multi" {
			return errors.New("redis: a transaction cannot wait for replicas; use a script")
		}
		confirmed := redis.NewIntCmd(ctx, "wait", r.replicas, r.wait.Milliseconds())
		if err := next(ctx, append(slices.Clip(cmds), confirmed)); err != nil {
			return err
		}
		if confirmed.Val() >= int64(r.replicas) {
			return nil
		}
		for _, w := range writes {
			w.SetErr(errNotReplicated)
		}
		return errNotReplicated
	}
}
