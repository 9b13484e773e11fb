// Package delta encodes changes of one scope's state for the scripts that apply them.
package delta

import (
	_ "embed"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
)

// Source is the Lua source that changes the state of a scope. It defines size_after and change.
//
//go:embed scripts/delta.lua
var Source string

// RequestSource is the Lua source in front of the scripts that handle UpdateState calls. It
// defines check_caller and request, and needs db.TurnSource and Source before it.
//
//go:embed scripts/request.lua
var RequestSource string

// Prefixes of the hash fields of a scope. A field with ValuePrefix holds the value of a key. In a scope that sessions
// share, a field with RevisionPrefix holds the revision that set the key.
const (
	ValuePrefix    = "v:"
	RevisionPrefix = "r:"
)

// SortedPairs returns the keys of a delta, each followed by its value and in sorted order, as delta.lua expects
// them.
func SortedPairs(delta map[string]json.RawMessage) []any {
	flat := make([]any, 0, 2*len(delta))
	for _, key := range slices.Sorted(maps.Keys(delta)) {
		flat = append(flat, key, string(delta[key]))
	}
	return flat
}

// SplitByScope groups the changes of a delta by the scope of their keys.
func SplitByScope(delta map[string]json.RawMessage) map[memory.Scope]map[string]json.RawMessage {
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

// RequestArgs returns the arguments of request.lua: the limits of a scope and the delta.
func RequestArgs(u memory.StateUpdate) []any {
	return append([]any{memory.MaxStateKeys, memory.MaxStateBytes, memory.MaxRequests}, SortedPairs(u.Delta)...)
}

// RequestID returns the id under which a scope remembers a request. It contains the session id, because sessions
// share scopes but not request ids.
func RequestID(u memory.StateUpdate) string { return u.Ref.Session + "/" + u.RequestID }

// RequiredRevision returns the revision that the scope must have (empty means any).
func RequiredRevision(u memory.StateUpdate) string {
	if u.IfRevision == nil {
		return ""
	}
	return strconv.FormatInt(*u.IfRevision, 10)
}

// ScopeKeys returns the keys of a shared scope: the key of its state, followed by the keys with the given names.
func ScopeKeys(ref session.Ref, user string, scope memory.Scope, names ...string) []string {
	at := db.Location(func(name string) string { return db.AppKey(ref.Tenant, name) })
	if scope == memory.ScopeUser {
		at = db.UserLocation(ref.Tenant, user)
	}
	keys := []string{at("state")}
	for _, name := range names {
		keys = append(keys, at(name))
	}
	return keys
}

// NewLimitExceededError returns the error for the script reply {"state_full", keys, bytes}.
func NewLimitExceededError(op string, scope memory.Scope, r db.Reply) error {
	return failure.Newf(failure.ResourceQuota, op,
		"state: the %s scope would hold %s keys and %s bytes; it may hold %d keys and %d bytes: remove some, or store large values as an artifact",
		scope, r.Text(1), r.Text(2), memory.MaxStateKeys, memory.MaxStateBytes).
		With("scope", string(scope)).With("keys", r.Text(1)).With("bytes", r.Text(2))
}

// NewNoUserError returns the error for a change of user: state in a session without a user.
func NewNoUserError(op string, ref session.Ref) error {
	return failure.Newf(failure.UserInvalidInput, op, "state: session %s has no user, so it has no user: keys; begin a session with a user", ref.Session).
		With("session_id", ref.Session)
}
