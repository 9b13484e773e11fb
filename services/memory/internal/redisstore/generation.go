package redisstore

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/services/memory/internal/generation"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
)

// storeKey is the key of the hash with data about the whole store. In a Cluster each master has its own such hash,
// and storeKey is the prefix of their keys.
const storeKey = "m:store"

var _ generation.GuardedStore = (*Store)(nil)

// Identity implements generation.GuardedStore. The shards are the masters of a Cluster.
func (s *Store) Identity(ctx context.Context) (generation.Identity, error) {
	id := generation.Identity{}
	err := s.forEachShard(ctx, "memory.Identity", func(shard redisconn.Shard) error {
		process, _, err := readServerIdentity(ctx, shard.Node)
		id[strings.TrimPrefix(shard.Key, storeKey)] = process
		return err
	})
	return id, err
}

// Increment implements generation.GuardedStore.
func (s *Store) Increment(ctx context.Context, shard string, by int64) (int64, error) {
	beat, err := s.db.HIncrBy(ctx, storeKey+shard, "beat", by).Result()
	if err != nil {
		return 0, s.db.Failure("memory.Beat", err)
	}
	return beat, nil
}

// StoreMark implements generation.GuardedStore. Every shard stores the mark, in case another shard is lost.
func (s *Store) StoreMark(ctx context.Context, m generation.Mark) error {
	return s.forEachShard(ctx, "memory.Remember", func(shard redisconn.Shard) error {
		return s.db.HSet(ctx, shard.Key, "generation", m.Generation, "identity", m.Identity).Err()
	})
}

// LoadMark implements generation.GuardedStore.
func (s *Store) LoadMark(ctx context.Context) (generation.Mark, error) {
	var latest generation.Mark
	err := s.forEachShard(ctx, "memory.Recall", func(shard redisconn.Shard) error {
		stored, err := s.db.HMGet(ctx, shard.Key, "generation", "identity").Result()
		m := generation.Mark{Generation: db.ParseNumber(db.Reply(stored).Text(0)), Identity: db.Reply(stored).Text(1)}
		if latest.Identity == "" || m.Generation > latest.Generation {
			latest = m
		}
		return err
	})
	return latest, err
}

// forEachShard calls do for each shard of the store, and returns at the first error.
func (s *Store) forEachShard(ctx context.Context, op string, do func(redisconn.Shard) error) error {
	shards, err := s.db.Shards(ctx, storeKey)
	if err != nil {
		return s.db.Failure(op, err)
	}
	for _, shard := range shards {
		if err := do(shard); err != nil {
			return s.db.Failure(op, err)
		}
	}
	return nil
}

// infoReader is implemented by a Redis client and by a single connection.
type infoReader interface {
	InfoMap(ctx context.Context, sections ...string) *redis.InfoCmd
}

// readServerIdentity returns an id of the Redis process at the other end of a connection. The id contains the ids
// of the process and of its replication history. One of the two changes after a restart, a failover or a restore
// (guarantee F7). It also reports whether the process is a replica in a Cluster, which takes no writes.
func readServerIdentity(ctx context.Context, conn infoReader) (process string, replica bool, err error) {
	info, err := conn.InfoMap(ctx, "server", "replication", "cluster").Result()
	if err != nil {
		return "", false, err
	}
	replica = info["Cluster"]["cluster_enabled"] == "1" && info["Replication"]["role"] == "slave"
	return info["Server"]["run_id"] + "/" + info["Replication"]["master_replid"], replica, nil
}

// newConnectHook returns a callback for new connections. The callback calls met with the Redis process that the
// connection has reached: an empty name if Redis refuses to identify itself. It is not called for a replica in a Cluster.
func newConnectHook(met func(process string)) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, conn *redis.Conn) error {
		process, replica, err := readServerIdentity(ctx, conn)
		if _, rejected := errors.AsType[redis.Error](err); rejected {
			err = nil
		}
		if err == nil && !replica {
			met(process)
		}
		return err
	}
}
