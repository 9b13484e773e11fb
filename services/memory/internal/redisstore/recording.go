package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/recording.lua
var recordingSource string

var recordingScript = script(turnSource, pageSource, recordingSource)

// kept are entries that a commit brings for the journal, as its script takes them; none in a
// store that does not keep them.
func (s *Store) kept(entries []execution.Entry) ([]any, error) {
	if s.cfg.KeepJournals == 0 {
		return nil, nil
	}
	var kept []any
	for _, e := range entries {
		value, err := encoding.Marshal(wire.EntryToProto(e))
		if err != nil {
			return nil, err
		}
		kept = append(kept, field(e), value)
	}
	return kept, nil
}

// Recording implements memory.Journal.
func (s *Store) Recording(ctx context.Context, ref session.Ref, turnID string, step, from int) ([]execution.Entry, error) {
	const op = "memory.Recording"
	r, err := s.look(ctx, op, ref, recordingScript, keys(ref, turnID, journalOf(turnID, step)), step, from-1, memory.MaxWindowBytes)
	if err != nil {
		return nil, err
	}
	if r.status() != "ok" {
		return nil, refused(op, memory.Hold{Ref: ref, TurnID: turnID}, r)
	}
	return entries(op, r)
}

// turns are the ids of those that a session knows.
func (s *Store) turns(ctx context.Context, op string, ref session.Ref) ([]string, error) {
	ids, err := s.redis.ZRevRangeByScore(ctx, key(ref, "turns"), &redis.ZRangeBy{Min: "-inf", Max: "+inf"}).Result()
	if err != nil {
		return nil, s.redis.Fault(op, err)
	}
	return ids, nil
}

// keptJournals are the keys under which a session may have journals of steps that are over. A
// store that keeps none looks for none: those of one before it expire.
func (s *Store) keptJournals(ctx context.Context, op string, ref session.Ref) ([]string, error) {
	if s.cfg.KeepJournals == 0 {
		return nil, nil
	}
	turns, err := s.turns(ctx, op, ref)
	if err != nil {
		return nil, err
	}
	return s.journals(ctx, op, ref, turns)
}

// forgetRecorded removes the journals of steps of turns whose first message a compaction took: they
// cannot be run again. All these turns are closed.
func (s *Store) forgetRecorded(ctx context.Context, op string, ref session.Ref, last int64) error {
	if s.cfg.KeepJournals == 0 {
		return nil
	}
	turns, err := s.turns(ctx, op, ref)
	if err != nil {
		return err
	}
	firsts := make([]*redis.StringCmd, len(turns))
	_, err = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range turns {
			firsts[i] = p.HGet(ctx, key(ref, "turn:"+id), "first")
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return s.redis.Fault(op, err)
	}
	var gone []string
	for i, id := range turns {
		if first, err := firsts[i].Int64(); err == nil && first <= last {
			gone = append(gone, id)
		}
	}
	keys, err := s.journals(ctx, op, ref, gone)
	if err != nil || len(keys) == 0 {
		return err
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
	return nil
}
