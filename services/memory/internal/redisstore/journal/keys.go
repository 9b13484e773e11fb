package journal

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
)

// BatchSize is the largest number of turns or keys in one command.
const BatchSize = 500

// JournalKeys returns the keys under which steps of the given turns may have a journal. These are the committed
// steps, whose journals may be kept, the next step, and the steps that the turn's hash names.
func (j *Journal) JournalKeys(ctx context.Context, op string, ref session.Ref, turns []string) ([]string, error) {
	steps, fields := make([]*redis.StringCmd, len(turns)), make([]*redis.StringSliceCmd, len(turns))
	_, err := j.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range turns {
			steps[i] = p.HGet(ctx, db.Key(ref, "turn:"+id), "steps")
			fields[i] = p.HKeys(ctx, db.Key(ref, "turn:"+id))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, j.db.Failure(op, err)
	}
	var keys []string
	for i, id := range turns {
		n, err := steps[i].Int()
		for step := 1; err == nil && step <= n+1; step++ {
			keys = append(keys, db.Key(ref, db.JournalName(id, step)))
		}
		for _, field := range fields[i].Val() {
			if step, ok := strings.CutPrefix(field, "jrnl"); ok {
				keys = append(keys, db.Key(ref, db.JournalName(id, int(db.ParseNumber(step)))))
			}
		}
	}
	return keys, nil
}

// KeptJournalKeys returns the keys under which a session may have journals of finished steps. It returns none if
// the store keeps no journals. Journals that an earlier configuration kept expire by themselves.
func (j *Journal) KeptJournalKeys(ctx context.Context, op string, ref session.Ref) ([]string, error) {
	if j.retention == 0 {
		return nil, nil
	}
	turns, err := j.listTurnIDs(ctx, op, ref)
	if err != nil {
		return nil, err
	}
	return j.JournalKeys(ctx, op, ref, turns)
}

// DeleteCompactedJournals deletes the journals of turns whose first message is at or before last, because a
// compaction removed it. Without that message, their steps cannot be run again. All of these turns are closed.
func (j *Journal) DeleteCompactedJournals(ctx context.Context, op string, ref session.Ref, last int64) error {
	if j.retention == 0 {
		return nil
	}
	turns, err := j.listTurnIDs(ctx, op, ref)
	if err != nil {
		return err
	}
	firsts := make([]*redis.StringCmd, len(turns))
	_, err = j.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range turns {
			firsts[i] = p.HGet(ctx, db.Key(ref, "turn:"+id), "first")
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return j.db.Failure(op, err)
	}
	var compacted []string
	for i, id := range turns {
		if first, err := firsts[i].Int64(); err == nil && first <= last {
			compacted = append(compacted, id)
		}
	}
	keys, err := j.JournalKeys(ctx, op, ref, compacted)
	if err != nil || len(keys) == 0 {
		return err
	}
	_, err = j.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		for batch := range slices.Chunk(keys, BatchSize) {
			p.Unlink(ctx, batch...)
		}
		return nil
	})
	if err != nil {
		return j.db.Failure(op, err)
	}
	return nil
}

// listTurnIDs returns the ids of all turns in a session.
func (j *Journal) listTurnIDs(ctx context.Context, op string, ref session.Ref) ([]string, error) {
	ids, err := j.db.ZRevRangeByScore(ctx, db.Key(ref, "turns"), &redis.ZRangeBy{Min: "-inf", Max: "+inf"}).Result()
	if err != nil {
		return nil, j.db.Failure(op, err)
	}
	return ids, nil
}
