package redisstore

import (
	"context"
	_ "embed"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/wire"
)

//go:embed scripts/fail.lua
var failSource string

var failScript = script(turnSource, failSource)

// FailTurn implements memory.Turns.
func (s *Store) FailTurn(ctx context.Context, f memory.Fail) (session.Turn, error) {
	const op = "memory.FailTurn"
	why, err := encoding.Marshal(wire.FailToProto(f).GetFailure())
	if err != nil {
		return session.Turn{}, unencodable(op, err)
	}
	step, partial, err := s.saidSoFar(ctx, op, f.Ref, f.TurnID)
	if err != nil {
		return session.Turn{}, err
	}
	said, err := body(partial)
	if err != nil {
		return session.Turn{}, unreadable(op, err)
	}
	if partial.Text == "" {
		said = []byte{}
	}
	r, err := s.run(ctx, op, f.Ref, failScript, keys(f.Ref, f.TurnID, journalOf(f.TurnID, step)),
		f.Epoch, string(f.Outcome), why, string(f.Outcome.After()), retention.Milliseconds(),
		s.cfg.MaxMessages, s.cfg.MaxBytes, step, said, conversation.Size(partial))
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

// saidSoFar is the running step of a turn, and what it has said in its journal: without a
// text when that is nothing, or the turn is not open.
func (s *Store) saidSoFar(ctx context.Context, op string, ref session.Ref, turnID string) (int, conversation.Message, error) {
	var nothing conversation.Message
	turn, err := s.redis.HMGet(ctx, key(ref, "turn:"+turnID), "outcome", "steps").Result()
	if err != nil {
		return 0, nothing, s.redis.Fault(op, err)
	}
	step := int(number(reply(turn).text(1))) + 1
	if outcome, known := turn[0].(string); !known || outcome != "" {
		return step, nothing, nil
	}
	stored, err := s.redis.HGetAll(ctx, key(ref, journalOf(turnID, step))).Result()
	if err != nil {
		return 0, nothing, s.redis.Fault(op, err)
	}
	entries, err := entriesOf(stored)
	if err != nil {
		return 0, nothing, unreadable(op, err)
	}
	if said, ok := memory.PartialOf(entries); ok {
		return step, said, nil
	}
	return step, nothing, nil
}
