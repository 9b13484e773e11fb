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
	MaxRequests   = 1000    // calls that a scope knows again
)

// State is what sessions remember beside their messages (AD-17 to AD-19): under app: what
// all sessions of the tenant share, under user: what those of a user share, and without a
// prefix what is the session's own.
type State interface {
	// GetState returns what a session sees. Modes: not_found.
	GetState(ctx context.Context, ref session.Ref) (Snapshot, error)
	// UpdateState changes keys of one scope, all or nothing, and returns the scope's
	// revision afterwards, which is one more than before. A call that was made already, known
	// by its session and its request id, changes nothing and is answered as before; a scope
	// knows its latest MaxRequests. With a turn it is refused when the epoch is
	// not the latest.
	//
	// Modes, in the order in which they are looked for: state_violation and
	// user_invalid_input by CheckDelta and OneScope; not_found; fenced, turn_not_open;
	// user_invalid_input for user: in a session without a user; then a call that was made
	// already is answered; revision_mismatch with the current revision as a fact;
	// resource_quota.
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
	Untrusted string                     // what the session remembers of the source of untrusted words in it, as BeginTurn has it; empty: there are none
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
