package redisstore

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/commit.lua
var commitSource string

//go:embed scripts/weigh.lua
var weighSource string

var (
	commitScript = script(turnSource, deltaSource, commitSource)
	weighScript  = script(deltaSource, weighSource)
)

// CommitStep implements memory.Turns.
func (s *Store) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	const op = "memory.CommitStep"
	if err := memory.CheckDelta(op, c.State); err != nil {
		return 0, err
	}
	if err := memory.CheckPending(op, c); err != nil {
		return 0, err
	}
	last := c.Base + int64(len(c.Messages))
	c.Result.Sequence = last
	result, err := encoding.Marshal(wire.ResultToProto(c.Result))
	if err != nil {
		return 0, unencodable(op, err)
	}
	bodies, size := make([]any, len(c.Messages)), 0
	parts := [][]byte{[]byte(c.Outcome), result}
	for i, m := range c.Messages {
		b, err := body(m)
		if err != nil {
			return 0, unencodable(op, err)
		}
		bodies[i], parts, size = b, append(parts, b), size+conversation.Size(m)
	}
	inner, outer := apart(c.State)
	left, id, err := leave(c, outer)
	if err != nil {
		return 0, unencodable(op, err)
	}
	changes := pairs(inner)
	for _, p := range pairs(c.State) {
		parts = append(parts, []byte(p.(string)))
	}
	args := []any{
		c.Epoch, c.Base, c.Result.Step, digest(parts), result,
		string(c.Outcome), string(c.Outcome.After()), retention.Milliseconds(),
		s.cfg.MaxMessages, s.cfg.MaxBytes, memory.MaxStateKeys, memory.MaxStateBytes,
		left, id, needsUser(outer), size, waitingIn(c), s.cfg.KeepJournals.Milliseconds(), c.Source(),
	}
	full, err := s.overfull(ctx, op, c.Ref, outer)
	if err != nil {
		return 0, err
	}
	args = append(args, full...)
	entries, err := s.kept(c.Journal)
	if err != nil {
		return 0, unencodable(op, err)
	}
	args = append(args, len(args)+2+len(changes), len(args)+2+len(changes)+len(entries))
	args = slices.Concat(args, changes, entries, bodies)
	ks := keys(c.Ref, c.TurnID, journalOf(c.TurnID, c.Result.Step), "state", "out")
	r, err := s.run(ctx, op, c.Ref, commitScript, ks, args...)
	if err != nil {
		return 0, err
	}
	if r.status() != "ok" {
		return 0, s.uncommitted(op, c, r)
	}
	if len(outer) > 0 { // a repeat too: its first call may have ended before it came here
		if err := s.settle(ctx, c.Ref); err != nil {
			return 0, err
		}
	}
	return last, nil
}

// uncommitted is why the script did not commit.
func (s *Store) uncommitted(op string, c memory.Commit, r reply) error {
	h := memory.Hold{Ref: c.Ref, TurnID: c.TurnID, Epoch: c.Epoch}
	switch r.status() {
	case "step_committed":
		return committed(op, h, c.Result.Step)
	case "goes_on":
		return memory.GoesOnFirst(op, h.TurnID, c.Result.Step, int(number(r.text(1))))
	case "not_last":
		return memory.NotLast(op, h.TurnID, c.Result.Step)
	case "base_mismatch":
		return failure.Newf(failure.BaseMismatch, op, "session %s goes up to message %s and not %d; load the history again and repeat the step", c.Ref.Session, r.text(1), c.Base).
			With("base_sequence", strconv.FormatInt(c.Base, 10)).With("last_sequence", r.text(1))
	case "session_full":
		return s.full(op, c.Ref, r)
	case "state_full":
		return stateFull(op, memory.Scope(r.text(3)), r)
	case "no_user":
		return noUser(op, c.Ref)
	default:
		return refused(op, h, r)
	}
}

// overfull is the scope, its keys and its bytes that changes would make too large, as the
// script takes it. It is looked for before the commit, in another slot, so that commits which
// come at the same moment may all be let in; what a commit left never fails.
func (s *Store) overfull(ctx context.Context, op string, ref session.Ref, outer map[string]json.RawMessage) ([]any, error) {
	fits := []any{"", "", ""}
	if len(outer) == 0 {
		return fits, nil
	}
	user := ""
	if needsUser(outer) {
		var err error
		if user, err = s.redis.HGet(ctx, key(ref, "meta"), "user").Result(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, s.redis.Fault(op, err)
		}
	}
	for scope, delta := range scopes(outer) {
		if scope == memory.ScopeUser && user == "" {
			continue // the script refuses it
		}
		args := append([]any{memory.MaxStateKeys, memory.MaxStateBytes}, pairs(delta)...)
		r, err := s.look(ctx, op, ref, weighScript, scopeKeys(ref, user, scope, "state")[:1], args...)
		if err != nil {
			return nil, err
		}
		if r.status() != "ok" {
			return []any{string(scope), r.text(1), r.text(2)}, nil
		}
	}
	return fits, nil
}

// scopes parts changes by scope.
func scopes(delta map[string]json.RawMessage) map[memory.Scope]map[string]json.RawMessage {
	parts := map[memory.Scope]map[string]json.RawMessage{}
	for key, value := range delta {
		scope := memory.ScopeOf(key)
		if parts[scope] == nil {
			parts[scope] = map[string]json.RawMessage{}
		}
		parts[scope][key] = value
	}
	return parts
}

// apart parts what a commit changes itself from what follows it.
func apart(delta map[string]json.RawMessage) (inner, outer map[string]json.RawMessage) {
	inner, outer = map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for key, value := range delta {
		if memory.ScopeOf(key) == memory.ScopeSession {
			inner[key] = value
		} else {
			outer[key] = value
		}
	}
	return inner, outer
}

// leave is what a commit leaves in the outbox, and the id by which it is applied once.
func leave(c memory.Commit, outer map[string]json.RawMessage) (left []byte, id string, err error) {
	id = c.TurnID + "/" + strconv.Itoa(c.Result.Step)
	if len(outer) == 0 {
		return []byte{}, id, nil
	}
	left, err = encoding.Marshal(memorywire.StateUpdateToProto(memory.StateUpdate{Ref: c.Ref, RequestID: id, Delta: outer, Epoch: c.Epoch}))
	return left, id, err
}

func needsUser(delta map[string]json.RawMessage) bool {
	for key := range delta {
		if memory.ScopeOf(key) == memory.ScopeUser {
			return true
		}
	}
	return false
}

// pairs are the keys and values of a delta in turn, by key: what scripts/delta.lua takes.
func pairs(delta map[string]json.RawMessage) []any {
	flat := make([]any, 0, 2*len(delta))
	for _, key := range slices.Sorted(maps.Keys(delta)) {
		flat = append(flat, key, string(delta[key]))
	}
	return flat
}

// digest is the same for the same parts only: each goes in with its length.
func digest(parts [][]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}
