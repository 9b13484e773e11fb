package redisstore

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/wire"
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
	var entries []execution.Entry
	for i := range r.list(1) {
		e, err := entry(reply(r.list(1)).text(i))
		if err != nil {
			return nil, unreadable(op, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// keptJournals are the keys under which a session may have journals of steps that are over. A
// store that keeps none looks for none: those of one before it expire.
func (s *Store) keptJournals(ctx context.Context, op string, ref session.Ref) ([]string, error) {
	if s.cfg.KeepJournals == 0 {
		return nil, nil
	}
	turns, err := s.redis.ZRevRangeByScore(ctx, key(ref, "turns"), &redis.ZRangeBy{Min: "-inf", Max: "+inf"}).Result()
	if err != nil {
		return nil, s.redis.Fault(op, err)
	}
	return s.journals(ctx, op, ref, turns)
}
