package redisstore

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/settle.lua
var settleSource string

var settleScript = script(deltaSource, settleSource)

// settledKept is how long a scope knows what was applied to it, once nobody asks for it any
// more: longer than a call lasts that read it as still to be done.
const settledKept = 24 * time.Hour

// pending is a change that waits in its session, under an id of its own: that of a commit is
// its request id, that of a call begins with asked, putting or dropping, which no id of a turn
// does. With the latter two it is one of the artifacts of the user.
type pending struct {
	id string
	memory.StateUpdate
	artifact memory.Artifact // of such a call, and Ref; else none
}

const asked = "call:"

// settle makes the changes of app: and user: state, and of the artifacts of the user, that
// commits and calls of turns left in a session, each once, in their order, and removes them. A scope is in another slot than the
// session, so a change is made under its id, which the scope keeps until the session has
// forgotten it.
func (s *Store) settle(ctx context.Context, ref session.Ref) error {
	const op = "memory.settle"
	var waiting *redis.MapStringStringCmd
	var whose *redis.StringCmd
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		waiting, whose = p.HGetAll(ctx, key(ref, "out")), p.HGet(ctx, key(ref, "meta"), "user")
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return s.redis.Fault(op, err)
	}
	all := make([]pending, 0, len(waiting.Val()))
	for id, stored := range waiting.Val() {
		l, err := left(ref, id, stored)
		if err != nil {
			return unreadable(op, err)
		}
		all = append(all, l)
	}
	slices.SortFunc(all, inOrder)
	for _, l := range all {
		switch { // a refusal is for who called
		case l.putting() || l.dropping():
			_, err = s.answerArtifact(ctx, op, whose.Val(), l)
		case l.call():
			_, err = s.answer(ctx, op, whose.Val(), l)
		default:
			err = s.apply(ctx, op, whose.Val(), l.StateUpdate)
		}
		if err != nil && !failure.Is(err, failure.SessionDeleted) { // and with it the change
			return err
		}
	}
	return nil
}

// left reads what a session has under an id.
func left(ref session.Ref, id, stored string) (pending, error) {
	if l := (pending{id: id}); l.putting() || l.dropping() {
		return leftArtifact(ref, id, stored)
	}
	var p troupev1.UpdateStateRequest
	err := proto.Unmarshal([]byte(stored), &p)
	return pending{id: id, StateUpdate: memorywire.StateUpdateFromProto(ref.Tenant, &p)}, err
}

// call reports whether the change is that of a call, and not of a commit.
func (l pending) call() bool { return strings.HasPrefix(l.id, asked) || l.putting() || l.dropping() }

func (l pending) putting() bool { return strings.HasPrefix(l.id, putting) }

func (l pending) dropping() bool { return strings.HasPrefix(l.id, dropping) }

// inOrder is the order in which changes were left: one of a call when there were none, and
// those of commits by epoch, which has one turn, and by the number of the step with which
// their request id ends.
func inOrder(a, b pending) int {
	place := func(l pending) (epoch, step int64) {
		if l.call() {
			return 0, 0
		}
		return l.Epoch, number(l.RequestID[strings.LastIndexByte(l.RequestID, '/')+1:])
	}
	epochA, stepA := place(a)
	epochB, stepB := place(b)
	return cmp.Or(cmp.Compare(epochA, epochB), cmp.Compare(stepA, stepB))
}

// apply makes the change of a commit, and lets it be forgotten.
func (s *Store) apply(ctx context.Context, op, user string, u memory.StateUpdate) error {
	parts := map[memory.Scope][]any{}
	for name, value := range u.Delta {
		scope := memory.ScopeOf(name)
		parts[scope] = append(parts[scope], name, string(value))
	}
	for scope, changes := range parts {
		args := append([]any{pending{id: u.RequestID, StateUpdate: u}.settled(), settledKept.Milliseconds()}, changes...)
		if _, err := s.run(ctx, op, u.Ref, settleScript, scopeKeys(u.Ref, user, scope, "settled", "erased"), args...); err != nil {
			return err
		}
	}
	return s.forget(ctx, op, user, pending{id: u.RequestID, StateUpdate: u}, slices.Collect(maps.Keys(parts)))
}

// answer makes the change of a call, or refuses it, and lets it be forgotten.
func (s *Store) answer(ctx context.Context, op, user string, l pending) (reply, error) {
	scope, err := memory.OneScope(op, l.Delta)
	if err != nil {
		return nil, err
	}
	ks := scopeKeys(l.Ref, user, scope, "reqs", "erased", "settled")
	args := append([]any{requestID(l.StateUpdate), ifRevision(l.StateUpdate), l.settled()}, changes(l.StateUpdate)...)
	r, err := s.run(ctx, op, l.Ref, scopeScript, ks, args...)
	return s.answered(ctx, op, user, l, scope, r, err)
}

// answered lets a change of a call be forgotten that was decided on, also when that was because
// the user is erased.
func (s *Store) answered(ctx context.Context, op, user string, l pending, scope memory.Scope, r reply, err error) (reply, error) {
	if err != nil && !failure.Is(err, failure.SessionDeleted) {
		return nil, err
	}
	return r, cmp.Or(s.forget(ctx, op, user, l, []memory.Scope{scope}), err)
}

// settled is what the scopes know the change by once it is decided on.
func (l pending) settled() string { return l.Ref.Session + "/" + l.id }

// forget removes a change that was decided on: first from the session, and then from what
// the scopes know.
func (s *Store) forget(ctx context.Context, op, user string, l pending, scopes []memory.Scope) error {
	if err := s.redis.HDel(ctx, key(l.Ref, "out"), l.id).Err(); err != nil {
		return s.redis.Fault(op, err)
	}
	for _, scope := range scopes {
		if _, err := s.run(ctx, op, l.Ref, settleScript, scopeKeys(l.Ref, user, scope, "settled", "erased"), l.settled(), settledKept.Milliseconds()); err != nil {
			return err
		}
	}
	return nil
}

// scopeKeys are the state of a scope that sessions share, and what else it has of the names.
func scopeKeys(ref session.Ref, user string, scope memory.Scope, names ...string) []string {
	at := func(name string) string { return appKey(ref.Tenant, name) }
	if scope == memory.ScopeUser {
		at = ofUser(ref.Tenant, user)
	}
	ks := []string{at("state")}
	for _, name := range names {
		ks = append(ks, at(name))
	}
	return ks
}
