package redisstore

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/wire"
)

//go:embed scripts/settle.lua
var settleSource string

var settleScript = script(deltaSource, settleSource)

// settledKept is how long a scope knows what was applied to it, once nobody asks for it any
// more: longer than a call lasts that read it as still to be done.
const settledKept = 24 * time.Hour

// settle makes the changes of app: and user: state that commits of a session left, each
// once, in the order of the commits, and removes them. A scope is in another slot than the
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
	left := make([]memory.StateUpdate, 0, len(waiting.Val()))
	for _, stored := range waiting.Val() {
		var p troupev1.UpdateStateRequest
		if err := proto.Unmarshal([]byte(stored), &p); err != nil {
			return unreadable(op, err)
		}
		left = append(left, wire.StateUpdateFromProto(ref.Tenant, &p))
	}
	slices.SortFunc(left, byCommit)
	for _, u := range left {
		if err := s.apply(ctx, op, whose.Val(), u); err != nil {
			return err
		}
	}
	return nil
}

// byCommit is the order of commits: an epoch has one turn, and a request id of the outbox
// ends with the number of the step.
func byCommit(a, b memory.StateUpdate) int {
	step := func(u memory.StateUpdate) int64 {
		return number(u.RequestID[strings.LastIndexByte(u.RequestID, '/')+1:])
	}
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(step(a), step(b)))
}

// apply makes a change that waits in the session, and lets it be forgotten: first by the
// session, and then by the scopes.
func (s *Store) apply(ctx context.Context, op, user string, u memory.StateUpdate) error {
	ref, known := u.Ref, u.Ref.Session+"/"+u.RequestID
	parts := map[memory.Scope][]any{}
	for name, value := range u.Delta {
		scope := memory.ScopeOf(name)
		parts[scope] = append(parts[scope], name, string(value))
	}
	for scope, changes := range parts {
		args := append([]any{known, settledKept.Milliseconds()}, changes...)
		if _, err := s.run(ctx, op, ref, settleScript, scopeKeys(ref, user, scope, "settled"), args...); err != nil {
			return err
		}
	}
	if err := s.redis.HDel(ctx, key(ref, "out"), u.RequestID).Err(); err != nil {
		return s.redis.Fault(op, err)
	}
	for scope := range parts {
		if _, err := s.run(ctx, op, ref, settleScript, scopeKeys(ref, user, scope, "settled"), known, settledKept.Milliseconds()); err != nil {
			return err
		}
	}
	return nil
}

// scopeKeys are the state of a scope, and what else it has of the name.
func scopeKeys(ref session.Ref, user string, scope memory.Scope, name string) []string {
	switch scope {
	case memory.ScopeApp:
		return []string{appKey(ref.Tenant, "state"), appKey(ref.Tenant, name)}
	case memory.ScopeUser:
		return []string{userKey(ref.Tenant, user, "state"), userKey(ref.Tenant, user, name)}
	default:
		return []string{key(ref, "state"), key(ref, name)}
	}
}
