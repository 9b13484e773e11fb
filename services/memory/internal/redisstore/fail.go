package redisstore

import (
	"context"
	_ "embed"
	"time"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/fail.lua
var failSource string

var failScript = script(turnSource, failSource)

// FailTurn implements memory.Turns.
func (s *Store) FailTurn(ctx context.Context, f memory.Fail) (session.Turn, error) {
	const op = "memory.FailTurn"
	why, err := encoding.Marshal(memorywire.FailToProto(f).GetFailure())
	if err != nil {
		return session.Turn{}, unencodable(op, err)
	}
	left, err := s.saidSoFar(ctx, op, f.Ref, f.TurnID)
	if err != nil {
		return session.Turn{}, err
	}
	r, err := s.run(ctx, op, f.Ref, failScript, keys(f.Ref, f.TurnID, journalOf(f.TurnID, left.step)),
		f.Epoch, string(f.Outcome), why, string(f.Outcome.After()), retention.Milliseconds(),
		s.cfg.MaxMessages, s.cfg.MaxBytes, left.step, left.said, left.size, s.keptBehind(f.Outcome).Milliseconds(), left.source)
	if err != nil {
		return session.Turn{}, err
	}
	if r.status() != "closed" {
		return session.Turn{}, refused(op, memory.Hold{Ref: f.Ref, TurnID: f.TurnID, Epoch: f.Epoch}, r)
	}
	t, err := r.turn(1, f.TurnID)
	if err != nil {
		return session.Turn{}, unreadable(op, err)
	}
	return t, nil
}

// keptBehind is for how long the journal of the running step stays behind a turn that ends so: who goes
// on with a turn that failed must know what was done; one that was cancelled is over.
func (s *Store) keptBehind(outcome session.Outcome) time.Duration {
	if outcome == session.OutcomeFailed {
		return max(journalKept, s.cfg.KeepJournals)
	}
	return s.cfg.KeepJournals
}

// partial is what the running step of a turn has said.
type partial struct {
	step int
	said []byte // the body of a message; empty: nothing
	size int    // of it, as conversation.Size counts

	source string // of untrusted words that the step had read; empty: none
}

// saidSoFar reads the journal of the running step of a turn. One that is not open says
// nothing.
func (s *Store) saidSoFar(ctx context.Context, op string, ref session.Ref, turnID string) (partial, error) {
	turn, err := s.redis.HMGet(ctx, key(ref, "turn:"+turnID), "outcome", "steps").Result()
	if err != nil {
		return partial{}, s.redis.Fault(op, err)
	}
	left := partial{step: int(number(reply(turn).text(1))) + 1, said: []byte{}}
	if outcome, known := turn[0].(string); !known || outcome != "" {
		return left, nil
	}
	stored, err := s.redis.HGetAll(ctx, key(ref, journalOf(turnID, left.step))).Result()
	if err != nil {
		return partial{}, s.redis.Fault(op, err)
	}
	entries, err := entriesOf(stored)
	if err != nil {
		return partial{}, unreadable(op, err)
	}
	left.source = memory.SourceOf(entries)
	if m, ok := memory.PartialOf(entries); ok {
		left.size = conversation.Size(m)
		if left.said, err = body(m); err != nil {
			return partial{}, unreadable(op, err)
		}
	}
	return left, nil
}
