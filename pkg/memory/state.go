package memory

import (
	"context"
	"encoding/json"

	"github.com/troupe-dev/troupe/pkg/session"
)

// Limits of a scope.
const (
	MaxStateKeyBytes   = 128 // bytes
	MaxStateValueBytes = 64 << 10
	MaxStateKeys       = 1000
	MaxStateBytes      = 1 << 20 // bytes of keys and values together
	MaxDeltaKeys       = 256     // keys that one call changes
	MaxRequests        = 1000    // request ids that a scope remembers
)

// State stores keys that sessions remember in addition to their messages (AD-17 to AD-19). All sessions of a
// tenant share the keys under app:. All sessions of a user share the keys under user:. Keys without a prefix
// belong to one session.
type State interface {
	// GetState returns all state that a session can read. Modes: not_found.
	GetState(ctx context.Context, ref session.Ref) (Snapshot, error)
	// UpdateState changes keys of one scope, all or nothing. It returns the revision of the scope, which grows by
	// one. A repeated call, recognized by its session and request id, changes nothing and gets the same answer. A
	// scope remembers only its latest MaxRequests request ids. A call on behalf of a turn is fenced by its epoch.
	//
	// Modes, checked in this order: state_violation and user_invalid_input by CheckDelta and DeltaScope;
	// not_found; fenced, turn_not_open; user_invalid_input for user: in a session without a user; then a repeated
	// call is answered; revision_mismatch with the current revision as a fact; resource_quota.
	UpdateState(ctx context.Context, u StateUpdate) (int64, error)
}

// Scope says which sessions share a key.
type Scope string

// The scopes.
const (
	ScopeSession Scope = "session"
	ScopeUser    Scope = "user"
	ScopeApp     Scope = "app"
)

// Snapshot is all state that a session can read.
type Snapshot struct {
	Values    map[string]json.RawMessage // by key, with the prefix of its scope
	Revisions map[Scope]int64            // (0 means never changed)
	Keys      map[string]int64           // revision of its scope that last set a key of app: or user:, for Commit.Expected
	Untrusted string                     // gravest source of untrusted words in the session, see BeginTurn (empty means none)
}

// StateUpdate is a request to change keys of one scope.
type StateUpdate struct {
	Ref        session.Ref
	RequestID  string
	Delta      map[string]json.RawMessage // an empty value removes the key
	IfRevision *int64                     // revision that the scope must have (nil means any)
	TurnID     string                     // turn on whose behalf the call is made (empty means none)
	Epoch      int64                      // epoch of that turn; only with TurnID
}
