package redisstore

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/request.lua
var requestSource string

//go:embed scripts/state.lua
var stateSource string

//go:embed scripts/attend.lua
var attendSource string

//go:embed scripts/leave.lua
var leaveSource string

//go:embed scripts/scope.lua
var scopeSource string

var (
	stateScript  = script(turnSource, deltaSource, requestSource, stateSource)
	attendScript = script(turnSource, deltaSource, requestSource, attendSource)
	leaveScript  = script(turnSource, deltaSource, requestSource, leaveSource)
	scopeScript  = script(turnSource, deltaSource, requestSource, scopeSource)
)

// value is the beginning of the fields of a scope's values.
const value = "v:"

// GetState implements memory.State.
func (s *Store) GetState(ctx context.Context, ref session.Ref) (memory.Snapshot, error) {
	const op = "memory.GetState"
	seen, waiting, err := s.snapshot(ctx, op, ref)
	if err != nil || !waiting {
		return seen, err
	}
	if err := s.settle(ctx, ref); err != nil {
		return memory.Snapshot{}, err
	}
	seen, _, err = s.snapshot(ctx, op, ref)
	return seen, err
}

// snapshot reads what a session sees, and whether changes of a commit are still to come.
func (s *Store) snapshot(ctx context.Context, op string, ref session.Ref) (_ memory.Snapshot, waiting bool, _ error) {
	var meta *redis.SliceCmd
	var out *redis.Cmd
	var own, app *redis.MapStringStringCmd
	fields := append([]string{"user", "untrusted"}, standing...)
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		out = p.Do(ctx, "EXISTS", key(ref, "out"))
		own = p.HGetAll(ctx, key(ref, "state"))
		app = p.HGetAll(ctx, appKey(ref.Tenant, "state"))
		// Last, so that it names the source of what a commit in between put there.
		meta = p.HMGet(ctx, key(ref, "meta"), fields...)
		return nil
	})
	if err != nil {
		return memory.Snapshot{}, false, s.redis.Fault(op, err)
	}
	known := map[string]string{}
	for i, name := range fields {
		known[name] = reply(meta.Val()).text(i)
	}
	if err := readable(ctx, op, ref, known); err != nil {
		return memory.Snapshot{}, false, err
	}
	scopes := map[memory.Scope]map[string]string{memory.ScopeSession: own.Val(), memory.ScopeApp: app.Val()}
	if user := known["user"]; user != "" {
		scopes[memory.ScopeUser], err = s.redis.HGetAll(ctx, userKey(ref.Tenant, user, "state")).Result()
		if err != nil {
			return memory.Snapshot{}, false, s.redis.Fault(op, err)
		}
	}
	seen := memory.Snapshot{Values: map[string]json.RawMessage{}, Revisions: map[memory.Scope]int64{}, Untrusted: known["untrusted"]}
	for scope, stored := range scopes {
		seen.Revisions[scope] = number(stored["rev"])
		for field, text := range stored {
			if name, ok := strings.CutPrefix(field, value); ok {
				seen.Values[name] = json.RawMessage(text)
			}
		}
	}
	n, _ := out.Int64()
	return seen, n > 0, nil
}

// UpdateState implements memory.State.
func (s *Store) UpdateState(ctx context.Context, u memory.StateUpdate) (int64, error) {
	const op = "memory.UpdateState"
	if err := memory.CheckDelta(op, u.Delta); err != nil {
		return 0, err
	}
	scope, err := memory.OneScope(op, u.Delta)
	if err != nil {
		return 0, err
	}
	var r reply
	switch {
	case scope == memory.ScopeSession:
		epoch := ""
		if u.TurnID != "" {
			epoch = fence(ctx, u.Epoch)
		}
		args := append([]any{requestID(u), ifRevision(u), epoch}, changes(u)...)
		r, err = s.run(ctx, op, u.Ref, stateScript, keys(u.Ref, u.TurnID, "state", "reqs"), args...)
	case u.TurnID != "":
		r, err = s.shareInTurn(ctx, op, u, scope)
	default:
		r, err = s.share(ctx, op, u, scope)
	}
	if err != nil {
		return 0, err
	}
	switch r.status() {
	case "ok":
		return number(r.text(1)), nil
	case "revision_mismatch":
		return 0, otherRevision(op, "the state of the "+string(scope), ifRevision(u), r.text(1))
	case "no_session":
		return 0, noSession(op, u.Ref)
	case "no_user":
		return 0, noUser(op, u.Ref)
	case "state_full":
		return 0, stateFull(op, scope, r)
	case "pending", "decided":
		return 0, metOthers(op)
	default:
		return 0, refused(op, memory.Hold{Ref: u.Ref, TurnID: u.TurnID, Epoch: u.Epoch}, r)
	}
}

// share changes state that several sessions share, in nobody's name. It is in another slot
// than the session, which is asked first.
func (s *Store) share(ctx context.Context, op string, u memory.StateUpdate, scope memory.Scope) (reply, error) {
	r, err := s.look(ctx, op, u.Ref, attendScript, []string{key(u.Ref, "meta")})
	if err != nil || r.status() != "ok" {
		return r, err
	}
	user := r.text(1)
	if scope == memory.ScopeUser && user == "" {
		return reply{"no_user"}, nil
	}
	args := append([]any{requestID(u), ifRevision(u), ""}, changes(u)...)
	return s.run(ctx, op, u.Ref, scopeScript, scopeKeys(u.Ref, user, scope, "reqs", "erased"), args...)
}

// maxPending bounds how often a change comes again because others of its session are still
// to be made. Each time another caller got on.
const maxPending = 5

// shareInTurn is share in the name of a turn. The change is left in the session, which knows
// who holds the turn, and made from there as one that a commit left: so nobody who is fenced
// can make one.
func (s *Store) shareInTurn(ctx context.Context, op string, u memory.StateUpdate, scope memory.Scope) (r reply, err error) {
	stored, err := encoding.Marshal(memorywire.StateUpdateToProto(u))
	if err != nil {
		return nil, unencodable(op, err)
	}
	l := pending{id: asked + rand.Text(), StateUpdate: u}
	for range maxPending {
		r, err = s.run(ctx, op, u.Ref, leaveScript, keys(u.Ref, u.TurnID, "out"), fence(ctx, u.Epoch), l.id, stored, scope == memory.ScopeUser)
		if err != nil || r.status() != "ok" && r.status() != "pending" {
			return r, err
		}
		if r.status() == "ok" {
			return s.answer(ctx, op, r.text(1), l)
		}
		if err := s.settle(ctx, u.Ref); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// requestID is what a scope knows a call by: scopes are shared, and ids of requests are not.
func requestID(u memory.StateUpdate) string { return u.Ref.Session + "/" + u.RequestID }

// ifRevision is the revision that the scope must have; empty: any.
func ifRevision(u memory.StateUpdate) string {
	if u.IfRevision == nil {
		return ""
	}
	return strconv.FormatInt(*u.IfRevision, 10)
}

// changes are the arguments of scripts/request.lua.
func changes(u memory.StateUpdate) []any {
	return append([]any{memory.MaxStateKeys, memory.MaxStateBytes, memory.MaxRequests}, pairs(u.Delta)...)
}
