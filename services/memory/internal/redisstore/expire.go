package redisstore

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/session"
)

// expired is how many entries of the index one round trip of Expire reads.
const expired = 500

// Expire deletes the sessions of a tenant in which nothing has happened for so long, at
// least a millisecond, and in which no turn is open under a lease; it also ends deletions
// that were cut off. It returns how many it deleted, also with an error. It reads the part of
// the index that is old enough, by the clock of Redis.
func (s *Store) Expire(ctx context.Context, tenant string, age time.Duration) (int, error) {
	const op = "memory.Expire"
	now, err := s.redis.Time(ctx).Result()
	if err != nil {
		return 0, s.redis.Fault(op, err)
	}
	before := now.Add(-age).UnixMilli()
	at, count, index := position{created: before}, 0, indexKey(tenant, "")
	for {
		entries, err := s.entries(ctx, op, index, at, expired)
		if err != nil || len(entries) == 0 {
			return count, err
		}
		metas, err := s.metas(ctx, op, tenant, entries)
		if err != nil {
			return count, err
		}
		for i, meta := range metas {
			open := meta["open"] != "" && number(meta["deadline"]) > now.UnixMilli()
			switch {
			case gone(meta):
				err = s.unlist(ctx, op, index, entries[i])
			case unfinished(meta), !open && number(meta["active"]) <= before:
				var removed bool
				if removed, _, err = s.remove(ctx, session.Ref{Tenant: tenant, Session: entries[i].session}, age); removed {
					count++
				}
			}
			if err != nil {
				return count, err
			}
		}
		at = entries[len(entries)-1]
	}
}
