// Package state reads and changes the state of a session, including the state that it shares with other sessions.
package state

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/delta"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/outbox"
)

//go:embed scripts/state.lua
var stateSource string

//go:embed scripts/session_user.lua
var sessionUserSource string

var (
	stateScript       = db.Register("state", db.TurnSource, delta.Source, delta.RequestSource, stateSource)
	sessionUserScript = db.Register("session_user", db.TurnSource, delta.Source, delta.RequestSource, sessionUserSource)
)

// State implements memory.State. It is safe for concurrent use.
type State struct {
	db     *db.DB
	outbox *outbox.Outbox
}

// New returns a state store backed by d, which changes shared state through o.
func New(d *db.DB, o *outbox.Outbox) *State { return &State{d, o} }

// GetState implements memory.State.
func (s *State) GetState(ctx context.Context, ref session.Ref) (memory.Snapshot, error) {
	const op = "memory.GetState"
	snapshot, pending, err := s.readState(ctx, op, ref)
	if err != nil || !pending {
		return snapshot, err
	}
	if err := s.outbox.Drain(ctx, ref); err != nil {
		return memory.Snapshot{}, err
	}
	snapshot, _, err = s.readState(ctx, op, ref)
	return snapshot, err
}

// readState returns all state that a session can read. It also returns whether the outbox of the session has
// changes that are not applied yet.
func (s *State) readState(ctx context.Context, op string, ref session.Ref) (_ memory.Snapshot, pending bool, _ error) {
	var meta *redis.SliceCmd
	var out *redis.Cmd
	var own, app *redis.MapStringStringCmd
	fields := append([]string{"user", "untrusted"}, db.StatusFields...)
	_, err := s.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		out = p.Do(ctx, "EXISTS", db.Key(ref, "out"))
		own = p.HGetAll(ctx, db.Key(ref, "state"))
		app = p.HGetAll(ctx, db.AppKey(ref.Tenant, "state"))
		// The source of untrusted text is read last. So it also covers a commit that happens between the reads.
		meta = p.HMGet(ctx, db.Key(ref, "meta"), fields...)
		return nil
	})
	if err != nil {
		return memory.Snapshot{}, false, s.db.Failure(op, err)
	}
	known := db.Reply(meta.Val()).FieldsByName(fields)
	if err := db.CheckReader(ctx, op, ref, known); err != nil {
		return memory.Snapshot{}, false, err
	}
	scopes := map[memory.Scope]map[string]string{memory.ScopeSession: own.Val(), memory.ScopeApp: app.Val()}
	if user := known["user"]; user != "" {
		scopes[memory.ScopeUser], err = s.db.HGetAll(ctx, db.UserKey(ref.Tenant, user, "state")).Result()
		if err != nil {
			return memory.Snapshot{}, false, s.db.Failure(op, err)
		}
	}
	snapshot := memory.Snapshot{Values: map[string]json.RawMessage{}, Revisions: map[memory.Scope]int64{}, Keys: map[string]int64{}, Untrusted: known["untrusted"]}
	for scope, stored := range scopes {
		snapshot.Revisions[scope] = db.ParseNumber(stored["rev"])
		for field, text := range stored {
			if name, ok := strings.CutPrefix(field, delta.ValuePrefix); ok {
				snapshot.Values[name] = json.RawMessage(text)
			} else if name, ok := strings.CutPrefix(field, delta.RevisionPrefix); ok {
				snapshot.Keys[name] = db.ParseNumber(text)
			}
		}
	}
	n, _ := out.Int64()
	return snapshot, n > 0, nil
}

// UpdateState implements memory.State.
func (s *State) UpdateState(ctx context.Context, u memory.StateUpdate) (int64, error) {
	const op = "memory.UpdateState"
	if err := memory.CheckDelta(op, u.Delta); err != nil {
		return 0, err
	}
	scope, err := memory.DeltaScope(op, u.Delta)
	if err != nil {
		return 0, err
	}
	var r db.Reply
	switch {
	case scope == memory.ScopeSession:
		r, err = s.updateSession(ctx, op, u)
	case u.TurnID != "":
		// The change is first enqueued in the session, where the fence of the turn is checked. So a fenced caller
		// cannot change shared state.
		r, err = s.outbox.EnqueueState(ctx, op, u, scope)
	default:
		r, err = s.updateShared(ctx, op, u, scope)
	}
	if err != nil {
		return 0, err
	}
	switch r.Status() {
	case "ok":
		return db.ParseNumber(r.Text(1)), nil
	case "revision_mismatch":
		return 0, db.NewRevisionMismatchError(op, "the state of the "+string(scope), delta.RequiredRevision(u), r.Text(1))
	case "no_session":
		return 0, db.NewSessionNotFoundError(op, u.Ref)
	case "no_user":
		return 0, delta.NewNoUserError(op, u.Ref)
	case "state_full":
		return 0, delta.NewLimitExceededError(op, scope, r)
	case "pending", "decided":
		return 0, db.NewConcurrentChangeError(op)
	default:
		return 0, db.TurnErrorFromReply(op, memory.Lease{Ref: u.Ref, TurnID: u.TurnID, Epoch: u.Epoch}, r)
	}
}

// updateSession changes the state of the session itself, for a call with or without a turn.
func (s *State) updateSession(ctx context.Context, op string, u memory.StateUpdate) (db.Reply, error) {
	epoch := ""
	if u.TurnID != "" {
		epoch = db.FenceArg(ctx, u.Epoch)
	}
	args := append([]any{delta.RequestID(u), delta.RequiredRevision(u), epoch}, delta.RequestArgs(u)...)
	return s.db.RunScript(ctx, op, u.Ref, stateScript, db.TurnKeys(u.Ref, u.TurnID, "state", "reqs"), args...)
}

// updateShared changes shared state for a call without a turn. It reads the session first, because the shared
// state is in another slot.
func (s *State) updateShared(ctx context.Context, op string, u memory.StateUpdate, scope memory.Scope) (db.Reply, error) {
	r, err := s.db.RunReadOnlyScript(ctx, op, u.Ref, sessionUserScript, []string{db.Key(u.Ref, "meta")})
	if err != nil || r.Status() != "ok" {
		return r, err
	}
	user := r.Text(1)
	if scope == memory.ScopeUser && user == "" {
		return db.Reply{"no_user"}, nil
	}
	return s.outbox.ApplyDirectly(ctx, op, user, u, scope)
}
