package memory

import (
	"context"
	"encoding/json"

	"github.com/troupe-dev/troupe/pkg/session"
)

// Limits of a scope.
const (
	MaxStateKey   = 128 // bytes
	MaxStateValue = 64 << 10
	MaxStateKeys  = 1000
	MaxStateBytes = 1 << 20 // of keys and values together
	MaxDelta      = 256     // keys that one call changes
)

// State is what sessions remember beside their messages (AD-17 to AD-19): under app: what
// all sessions of the tenant share, under user: what those of a user share, and without a
// prefix what is the session's own.
type State interface {
	// GetState returns what a session sees. Modes: not_found.
	GetState(ctx context.Context, ref session.Ref) (Snapshot, error)
	// UpdateState changes keys of one scope, all or nothing, and returns the scope's
	// revision afterwards. A call that was made already, known by its request id, changes
	// nothing; a scope knows its latest 1,000. With a turn it is refused when the epoch is
	// not the latest.
	//
	// Modes: revision_mismatch with the current revision as a fact; fenced, turn_not_open;
	// state_violation for a key that is not of the MEMORY tier; user_invalid_input for keys
	// of several scopes, for user: in a session without a user, and for values that are not
	// JSON; resource_quota; not_found.
	UpdateState(ctx context.Context, u StateUpdate) (int64, error)
}

// Scope is who shares a key.
type Scope string

// The scopes.
const (
	ScopeSession Scope = "session"
	ScopeUser    Scope = "user"
	ScopeApp     Scope = "app"
)

// Snapshot is the state that a session sees.
type Snapshot struct {
	Values    map[string]json.RawMessage // by key, with the prefix of its scope
	Revisions map[Scope]int64            // 0: never changed
}

// StateUpdate changes keys of one scope.
type StateUpdate struct {
	Ref        session.Ref
	RequestID  string
	Delta      map[string]json.RawMessage // an empty value removes the key
	IfRevision *int64                     // that the scope must have; nil: any
	TurnID     string                     // in whose name; empty: nobody's
	Epoch      int64                      // with TurnID
}
