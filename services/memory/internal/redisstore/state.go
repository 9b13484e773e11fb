package redisstore

import (
	"context"
	_ "embed"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/request.lua
var requestSource string

//go:embed scripts/state.lua
var stateSource string

//go:embed scripts/attend.lua
var attendSource string

//go:embed scripts/scope.lua
var scopeSource string

var (
	stateScript  = script(turnSource, deltaSource, requestSource, stateSource)
	attendScript = script(turnSource, deltaSource, requestSource, attendSource)
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
	var meta, out *redis.Cmd
	var own, app *redis.MapStringStringCmd
	fields := []string{"deleted", "schema", "user"}
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		meta = p.Do(ctx, "HMGET", key(ref, "meta"), fields[0], fields[1], fields[2])
		out = p.Do(ctx, "EXISTS", key(ref, "out"))
		own = p.HGetAll(ctx, key(ref, "state"))
		app = p.HGetAll(ctx, appKey(ref.Tenant, "state"))
		return nil
	})
	if err != nil {
		return memory.Snapshot{}, false, s.redis.Fault(op, err)
	}
	known := map[string]string{}
	values, _ := meta.Slice()
	for i, name := range fields {
		known[name] = reply(values).text(i)
	}
	if err := usable(op, ref, known); err != nil {
		return memory.Snapshot{}, false, err
	}
	scopes := map[memory.Scope]map[string]string{memory.ScopeSession: own.Val(), memory.ScopeApp: app.Val()}
	if user := known["user"]; user != "" {
		scopes[memory.ScopeUser], err = s.redis.HGetAll(ctx, userKey(ref.Tenant, user, "state")).Result()
		if err != nil {
			return memory.Snapshot{}, false, s.redis.Fault(op, err)
		}
	}
	seen := memory.Snapshot{Values: map[string]json.RawMessage{}, Revisions: map[memory.Scope]int64{}}
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
	revision, epoch := "", ""
	if u.IfRevision != nil {
		revision = strconv.FormatInt(*u.IfRevision, 10)
	}
	if u.TurnID != "" {
		epoch = strconv.FormatInt(u.Epoch, 10)
	}
	delta := append([]any{memory.MaxStateKeys, memory.MaxStateBytes, memory.MaxRequests}, pairs(u.Delta)...)
	id := u.Ref.Session + "/" + u.RequestID // scopes are shared, and ids of requests are not
	var r reply
	if scope == memory.ScopeSession {
		r, err = s.run(ctx, op, u.Ref, stateScript, keys(u.Ref, u.TurnID, "state", "reqs"), append([]any{id, revision, epoch}, delta...)...)
	} else {
		r, err = s.share(ctx, op, u, scope, epoch, append([]any{id, revision}, delta...))
	}
	if err != nil {
		return 0, err
	}
	switch r.status() {
	case "ok":
		return number(r.text(1)), nil
	case "revision_mismatch":
		return 0, otherRevision(op, "the state of the "+string(scope), revision, r.text(1))
	case "no_session":
		return 0, noSession(op, u.Ref)
	case "state_full":
		return 0, stateFull(op, scope, r)
	default:
		return 0, refused(op, memory.Hold{Ref: u.Ref, TurnID: u.TurnID, Epoch: u.Epoch}, r)
	}
}

// share changes state that several sessions share. It is in another slot than the session,
// which is asked first: a writer that is fenced right then is still let through, as one who
// had come a moment earlier.
func (s *Store) share(ctx context.Context, op string, u memory.StateUpdate, scope memory.Scope, epoch string, args []any) (reply, error) {
	r, err := s.look(ctx, op, u.Ref, attendScript, keys(u.Ref, u.TurnID), epoch)
	if err != nil || r.status() != "ok" {
		return r, err
	}
	user := r.text(1)
	if scope == memory.ScopeUser && user == "" {
		return nil, noUser(op, u.Ref)
	}
	return s.run(ctx, op, u.Ref, scopeScript, scopeKeys(u.Ref, user, scope, "reqs"), args...)
}
