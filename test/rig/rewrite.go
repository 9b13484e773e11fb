package rig

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/redistest"
)

// Keys are all keys of Redis that hold a text, in their name or in what they hold.
func (m *Mesh) Keys(what string) (found []string) {
	m.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: m.redis.Addr, Username: redistest.Admin, Password: redistest.Admin})
	defer func() { require.NoError(m.t, client.Close()) }()
	require.NoError(m.t, client.ConfigSet(m.t.Context(), "rdbcompression", "no").Err())
	for cursor := uint64(0); ; {
		keys, next, err := client.Scan(m.t.Context(), cursor, "*", 1000).Result()
		require.NoError(m.t, err)
		for _, key := range keys {
			if content, err := client.Dump(m.t.Context(), key).Result(); err == nil && strings.Contains(key+content, what) {
				found = append(found, key)
			}
		}
		if cursor = next; cursor == 0 {
			return found
		}
	}
}

// RewriteRedis has Redis write its log anew, of what it holds now, and returns when the one of
// before is no more (BGREWRITEAOF).
func (m *Mesh) RewriteRedis(ctx context.Context) {
	m.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: m.redis.Addr, Username: redistest.Admin, Password: redistest.Admin})
	defer func() { require.NoError(m.t, client.Close()) }()
	require.NoError(m.t, client.ConfigSet(ctx, "rdbcompression", "no").Err())
	require.NoError(m.t, client.BgRewriteAOF(ctx).Err())
	m.Await("Redis has rewritten its log", func() bool {
		info := client.Info(ctx, "persistence").Val()
		return strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0")
	})
}
