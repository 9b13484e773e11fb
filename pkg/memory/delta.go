package memory

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// ScopeOf returns the scope that the prefix of a key selects.
func ScopeOf(key string) Scope {
	switch {
	case strings.HasPrefix(key, "app:"):
		return ScopeApp
	case strings.HasPrefix(key, "user:"):
		return ScopeUser
	default:
		return ScopeSession
	}
}

// CheckDelta rejects changes of state that cannot be stored. Modes, with the fact key: state_violation for keys of
// another tier, user_invalid_input otherwise.
func CheckDelta(op string, delta map[string]json.RawMessage) error {
	wrong := func(key, format string, args ...any) error {
		return failure.Newf(failure.UserInvalidInput, op, format, args...).With("key", key)
	}
	if len(delta) > MaxDeltaKeys {
		return failure.Newf(failure.UserInvalidInput, op, "state: %d keys are too many; change at most %d in one call", len(delta), MaxDeltaKeys)
	}
	for _, key := range slices.Sorted(maps.Keys(delta)) {
		value := delta[key]
		// In RAM an undeclared key belongs to the agent. In a delta it belongs to the session (C-18).
		if owner, declared := ownership.OwnerOf(key); owner != ownership.Memory && declared {
			return failure.Newf(failure.StateViolation, op, "state %q is owned by %s and cannot be stored in a session; leave it out", key, owner).
				With("key", key).With("owner", string(owner))
		}
		switch {
		case !utf8.ValidString(key):
			return wrong(key, "state: the key %q is not valid UTF-8", key)
		case key == "" || len(key) > MaxStateKeyBytes:
			return wrong(key, "state: a key has 1 to %d bytes, and %q has %d", MaxStateKeyBytes, key, len(key))
		case len(value) > MaxStateValueBytes:
			return wrong(key, "state %q: a value of %d bytes is too long; store at most %d, and more as an artifact", key, len(value), MaxStateValueBytes)
		case len(value) > 0 && (!json.Valid(value) || !utf8.Valid(value)):
			return wrong(key, "state %q: the value is not JSON in UTF-8", key)
		}
	}
	return nil
}

// DeltaScope returns the scope of all keys of a delta. Modes: user_invalid_input when there are several scopes
// or no keys.
func DeltaScope(op string, delta map[string]json.RawMessage) (Scope, error) {
	var scope Scope
	for key := range delta {
		if s := ScopeOf(key); scope == "" {
			scope = s
		} else if s != scope {
			return "", failure.New(failure.UserInvalidInput, op, "delta: its keys are of several scopes; change one scope in one call")
		}
	}
	if scope == "" {
		return "", failure.New(failure.UserInvalidInput, op, "delta: it is empty; name at least one key")
	}
	return scope, nil
}
