package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/delete.lua
var deleteSource string

var deleteScript = script(deleteSource)

// DeleteSession implements memory.Sessions.
func (s *Store) DeleteSession(ctx context.Context, ref session.Ref) (memory.Erasure, error) {
	_, mark, err := s.remove(ctx, ref, 0)
	if err != nil {
		return memory.Erasure{}, err
	}
	return erasure(ref, mark), nil
}

// remove deletes a session; with an age only one in which nothing has happened for so long,
// and in which no turn is open under a lease. It returns whether the session was deleted, and
// its mark.
func (s *Store) remove(ctx context.Context, ref session.Ref, age time.Duration) (bool, map[string]string, error) {
	const op = "memory.DeleteSession"
	r, err := s.run(ctx, op, ref, deleteScript, []string{key(ref, "meta"), key(ref, "log"), key(ref, "state"), key(ref, "reqs")}, age.Milliseconds())
	if err != nil {
		return false, nil, err
	}
	switch mark := r.fields(1); r.status() {
	case "ok": // also when a call before ended on its way
		return true, mark, s.finish(ctx, op, ref, mark["user"])
	case "gone", "active":
		return false, mark, nil
	default:
		return false, nil, refusedFor(op, ref, r)
	}
}

// tallied is the beginning of the fields of a mark that say how much there was of a kind.
const tallied = "n:"

// erasure is what the mark of a session tells. Nobody could read anything from the moment on
// when it was made.
func erasure(ref session.Ref, mark map[string]string) memory.Erasure {
	at := moment(mark["deleted"])
	e := memory.Erasure{Session: ref.Session, Began: at, Ended: at, Remains: []memory.Remainder{memory.MarkOf(at)}}
	for field, n := range mark {
		if kind, ok := strings.CutPrefix(field, tallied); ok {
			e.Add(map[string]int64{kind: number(n)})
		}
	}
	return e
}

// unfinished reports whether a meta is the mark of a session that still has something to
// remove.
func unfinished(meta map[string]string) bool {
	_, left := meta["user"]
	return meta["deleted"] != "" && left
}

// gone reports whether nothing but a mark is left of a session with such a meta, or not even
// that.
func gone(meta map[string]string) bool { return meta["schema"] == "" && !unfinished(meta) }

// finish removes what a deleted session still has beside its mark. Nobody writes to it any
// more, so that what is read is all there is. It can be done again wherever it ended: the
// mark lives, and the tenant's index leads to it, until all else is gone.
func (s *Store) finish(ctx context.Context, op string, ref session.Ref, user string) error {
	if err := s.settle(ctx, ref); err != nil {
		return err
	}
	if err := s.forgetTurns(ctx, op, ref); err != nil {
		return err
	}
	if err := s.forgetArtifacts(ctx, op, ref); err != nil {
		return err
	}
	if user != "" {
		if err := s.redis.ZRem(ctx, indexKey(ref.Tenant, user), ref.Session).Err(); err != nil {
			return s.redis.Fault(op, err)
		}
	}
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.PExpire(ctx, key(ref, "meta"), memory.Retention)
		p.HDel(ctx, key(ref, "meta"), "user")
		return nil
	})
	if err != nil {
		return s.redis.Fault(op, err)
	}
	if err := s.redis.ZRem(ctx, indexKey(ref.Tenant, ""), ref.Session).Err(); err != nil {
		return s.redis.Fault(op, err)
	}
	return nil
}

// swept is how many turns or keys one command is about.
const swept = 500

// forgetTurns removes the turns of a session and their journals, some at a time.
func (s *Store) forgetTurns(ctx context.Context, op string, ref session.Ref) error {
	list := key(ref, "turns")
	for {
		some, err := s.redis.ZRevRangeByScore(ctx, list, &redis.ZRangeBy{Min: "-inf", Max: "+inf", Count: swept}).Result()
		if err != nil {
			return s.redis.Fault(op, err)
		}
		if len(some) == 0 {
			return nil
		}
		keys, err := s.journals(ctx, op, ref, some)
		if err != nil {
			return err
		}
		gone := make([]any, len(some))
		for i, id := range some {
			keys, gone[i] = append(keys, key(ref, "turn:"+id)), id
		}
		_, err = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Unlink(ctx, keys...)
			p.ZRem(ctx, list, gone...)
			return nil
		})
		if err != nil {
			return s.redis.Fault(op, err)
		}
		if len(some) < swept {
			return nil
		}
	}
}

// forgetArtifacts removes the artifacts of a session, also what is staged, and last what
// lists them.
func (s *Store) forgetArtifacts(ctx context.Context, op string, ref session.Ref) error {
	stored, _, err := s.artifacts(ctx, op, ref)
	if err != nil {
		return err
	}
	staged, err := s.redis.ZRevRangeByScore(ctx, key(ref, "staged"), &redis.ZRangeBy{Min: "-inf", Max: "+inf"}).Result()
	if err != nil {
		return s.redis.Fault(op, err)
	}
	for _, name := range staged {
		stored = append(stored, memory.Artifact{Content: contentNamed(name)})
	}
	_, err = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for some := range slices.Chunk(contentsOf(ref, stored), swept) {
			p.Unlink(ctx, some...)
		}
		p.Unlink(ctx, key(ref, "arts"), key(ref, "staged"))
		return nil
	})
	if err != nil {
		return s.redis.Fault(op, err)
	}
	return nil
}

// journals are the keys of the steps that may have one: of each turn the next, the last, which
// may wait, all before it, when they are kept, and those that the turn knows of.
func (s *Store) journals(ctx context.Context, op string, ref session.Ref, turns []string) ([]string, error) {
	steps, fields := make([]*redis.StringCmd, len(turns)), make([]*redis.StringSliceCmd, len(turns))
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range turns {
			steps[i] = p.HGet(ctx, key(ref, "turn:"+id), "steps")
			fields[i] = p.HKeys(ctx, key(ref, "turn:"+id))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, s.redis.Fault(op, err)
	}
	var keys []string
	for i, id := range turns {
		n, err := steps[i].Int()
		for step := 1; err == nil && step <= n+1; step++ {
			keys = append(keys, key(ref, journalOf(id, step)))
		}
		for _, field := range fields[i].Val() {
			if step, ok := strings.CutPrefix(field, "jrnl"); ok {
				keys = append(keys, key(ref, journalOf(id, int(number(step)))))
			}
		}
	}
	return keys, nil
}
