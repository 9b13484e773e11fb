package redisstore

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/services/memory/internal/generation"
)

// storeKey is about the whole store. In a Cluster each node has one, which begins so.
const storeKey = "m:store"

var _ generation.Data = (*Store)(nil)

// Identity implements generation.Data. The shares are the masters of a Cluster.
func (s *Store) Identity(ctx context.Context) (generation.Identity, error) {
	id := generation.Identity{}
	err := s.shares(ctx, "memory.Identity", func(share redisconn.Share) error {
		process, _, err := server(ctx, share.Node)
		id[strings.TrimPrefix(share.Key, storeKey)] = process
		return err
	})
	return id, err
}

// Beat implements generation.Data.
func (s *Store) Beat(ctx context.Context, share string, by int64) (int64, error) {
	beat, err := s.redis.HIncrBy(ctx, storeKey+share, "beat", by).Result()
	if err != nil {
		return 0, s.redis.Fault("memory.Beat", err)
	}
	return beat, nil
}

// Remember implements generation.Data. Each share has the mark, should another be lost.
func (s *Store) Remember(ctx context.Context, m generation.Mark) error {
	return s.shares(ctx, "memory.Remember", func(share redisconn.Share) error {
		return s.redis.HSet(ctx, share.Key, "generation", m.Generation, "identity", m.Identity).Err()
	})
}

// Recall implements generation.Data.
func (s *Store) Recall(ctx context.Context) (generation.Mark, error) {
	var latest generation.Mark
	err := s.shares(ctx, "memory.Recall", func(share redisconn.Share) error {
		stored, err := s.redis.HMGet(ctx, share.Key, "generation", "identity").Result()
		m := generation.Mark{Generation: number(reply(stored).text(0)), Identity: reply(stored).text(1)}
		if latest.Identity == "" || m.Generation > latest.Generation {
			latest = m
		}
		return err
	})
	return latest, err
}

// shares calls do for each share of the store, and stops at the first error.
func (s *Store) shares(ctx context.Context, op string, do func(redisconn.Share) error) error {
	shares, err := s.redis.Shares(ctx, storeKey)
	if err != nil {
		return s.redis.Fault(op, err)
	}
	for _, share := range shares {
		if err := do(share); err != nil {
			return s.redis.Fault(op, err)
		}
	}
	return nil
}

// speaker is a client, or one connection of it.
type speaker interface {
	InfoMap(ctx context.Context, sections ...string) *redis.InfoCmd
}

// server names the process at the other end of a connection, and the history of its data: one
// of them changes after a restart, a failover or a restore (guarantees F7). A replica of a
// Cluster takes no writes.
func server(ctx context.Context, conn speaker) (process string, replica bool, err error) {
	info, err := conn.InfoMap(ctx, "server", "replication", "cluster").Result()
	if err != nil {
		return "", false, err
	}
	replica = info["Cluster"]["cluster_enabled"] == "1" && info["Replication"]["role"] == "slave"
	return info["Server"]["run_id"] + "/" + info["Replication"]["master_replid"], replica, nil
}

// introduced tells who is at the other end of each new connection; nobody, when Redis does
// not say.
func introduced(met func(process string)) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, conn *redis.Conn) error {
		process, replica, err := server(ctx, conn)
		if _, refused := errors.AsType[redis.Error](err); refused {
			err = nil
		}
		if err == nil && !replica {
			met(process)
		}
		return err
	}
}
