package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/delete.lua
var deleteSource string

var deleteScript = script(deleteSource)

// DeleteSession implements memory.Sessions.
func (s *Store) DeleteSession(ctx context.Context, ref session.Ref) error {
	_, err := s.remove(ctx, ref, 0)
	return err
}

// remove deletes a session; with an age only one in which nothing has happened for so long,
// and in which no turn is open. It returns whether the session was deleted.
func (s *Store) remove(ctx context.Context, ref session.Ref, age time.Duration) (bool, error) {
	const op = "memory.DeleteSession"
	r, err := s.run(ctx, op, ref, deleteScript, []string{key(ref, "meta"), key(ref, "log"), key(ref, "state"), key(ref, "reqs")},
		memory.Retention.Milliseconds(), age.Milliseconds())
	if err != nil {
		return false, err
	}
	switch r.status() {
	case "ok": // also when it was deleted: what a call before left is removed now
	case "active":
		return false, nil
	default:
		return false, refusedFor(op, ref, r)
	}
	// Nobody writes to the session any more, so that what is read now is all there is.
	if err := s.settle(ctx, ref); err != nil {
		return false, err
	}
	if err := s.unindex(ctx, op, ref, r.text(1)); err != nil {
		return false, err
	}
	return true, s.sweep(ctx, op, ref)
}

// swept is how many keys one command removes.
const swept = 500

// sweep removes what a deleted session still has beside its mark. The lists of its keys go
// last, so that it can be done again. Content that was staged only goes within a day, by
// itself.
func (s *Store) sweep(ctx context.Context, op string, ref session.Ref) error {
	turns, err := s.redis.SMembers(ctx, key(ref, "turns")).Result()
	if err != nil {
		return s.redis.Fault(op, err)
	}
	stored, err := s.artifacts(ctx, op, ref)
	if err != nil {
		return err
	}
	keys := contentsOf(ref, stored)
	journals, err := s.journals(ctx, op, ref, turns)
	if err != nil {
		return err
	}
	keys = append(keys, journals...)
	for _, id := range turns {
		keys = append(keys, key(ref, "turn:"+id))
	}
	_, err = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for some := range slices.Chunk(keys, swept) {
			p.Unlink(ctx, some...)
		}
		return nil
	})
	if err != nil {
		return s.redis.Fault(op, err)
	}
	_, err = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Unlink(ctx, key(ref, "turns"), key(ref, "arts"), key(ref, "out"))
		p.HDel(ctx, key(ref, "meta"), "user")
		return nil
	})
	if err != nil {
		return s.redis.Fault(op, err)
	}
	return nil
}

// journals are the keys of the steps that may have one: of each turn the next.
func (s *Store) journals(ctx context.Context, op string, ref session.Ref, turns []string) ([]string, error) {
	steps := make([]*redis.StringCmd, len(turns))
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range turns {
			steps[i] = p.HGet(ctx, key(ref, "turn:"+id), "steps")
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, s.redis.Fault(op, err)
	}
	var keys []string
	for i, id := range turns {
		if n, err := steps[i].Int(); err == nil {
			keys = append(keys, key(ref, journalOf(id, n+1)))
		}
	}
	return keys, nil
}
