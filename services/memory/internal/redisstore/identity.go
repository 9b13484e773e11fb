package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/services/memory/internal/generation"
)

// storeKey is about the whole store.
const storeKey = "m:store"

var _ generation.Data = (*Store)(nil)

// Identity implements generation.Data.
func (s *Store) Identity(ctx context.Context) (string, error) {
	id, err := identity(ctx, s.redis)
	if err != nil {
		return "", s.redis.Fault("memory.Identity", err)
	}
	return id, nil
}

// Beat implements generation.Data.
func (s *Store) Beat(ctx context.Context, by int64) (int64, error) {
	beat, err := s.redis.HIncrBy(ctx, storeKey, "beat", by).Result()
	if err != nil {
		return 0, s.redis.Fault("memory.Beat", err)
	}
	return beat, nil
}

// Remember implements generation.Data.
func (s *Store) Remember(ctx context.Context, m generation.Mark) error {
	if err := s.redis.HSet(ctx, storeKey, "generation", m.Generation, "identity", m.Identity).Err(); err != nil {
		return s.redis.Fault("memory.Remember", err)
	}
	return nil
}

// Recall implements generation.Data.
func (s *Store) Recall(ctx context.Context) (generation.Mark, error) {
	stored, err := s.redis.HMGet(ctx, storeKey, "generation", "identity").Result()
	if err != nil {
		return generation.Mark{}, s.redis.Fault("memory.Recall", err)
	}
	return generation.Mark{Generation: number(reply(stored).text(0)), Identity: reply(stored).text(1)}, nil
}

// speaker is a client, or one connection of it.
type speaker interface {
	InfoMap(ctx context.Context, sections ...string) *redis.InfoCmd
	ClusterInfo(ctx context.Context) *redis.StringCmd
	ClusterNodes(ctx context.Context) *redis.StringCmd
}

// identity names the data behind a connection. It changes when another process serves them:
// after a restart, a failover or a restore (guarantees F7).
func identity(ctx context.Context, conn speaker) (string, error) {
	info, err := conn.InfoMap(ctx, "server", "replication", "cluster").Result()
	if err != nil {
		return "", err
	}
	if info["Cluster"]["cluster_enabled"] == "1" {
		return clusterIdentity(ctx, conn)
	}
	return info["Server"]["run_id"] + "/" + info["Replication"]["master_replid"], nil
}

// clusterIdentity is the epoch of a Cluster and its masters: it changes with each failover.
func clusterIdentity(ctx context.Context, conn speaker) (string, error) {
	info, err := conn.ClusterInfo(ctx).Result()
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(info, "cluster_current_epoch:")
	if !found {
		return "", fmt.Errorf("CLUSTER INFO of redis has no cluster_current_epoch")
	}
	epoch, _, _ := strings.Cut(rest, "\r\n")
	nodes, err := conn.ClusterNodes(ctx).Result()
	if err != nil {
		return "", err
	}
	var masters []string
	for line := range strings.Lines(nodes) {
		// <id> <address> <flags> <master> <ping> <pong> <epoch> <link> <slot> …
		if f := strings.Fields(line); len(f) > 8 && strings.Contains(f[2], "master") {
			masters = append(masters, f[0])
		}
	}
	slices.Sort(masters)
	return epoch + "/" + strings.Join(masters, ","), nil
}

// introduced tells who is at the other end of each new connection.
func introduced(met func(string)) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, conn *redis.Conn) error {
		id, err := identity(ctx, conn)
		if err == nil {
			met(id)
		}
		return err
	}
}
