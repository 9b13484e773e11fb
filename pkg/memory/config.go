package memory

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// Limits of a configuration.
const (
	MaxConfigKeys  = 128
	MaxConfigBytes = 256 << 10 // keys and values together
)

// Configuration holds the configuration values of an agent, in the SHARED tier (SO-11, C-25).
type Configuration struct {
	Version  int64 // grows with each change, also after a restore of older data (0 means never written)
	Values   map[string]json.RawMessage
	Protocol ownership.Protocol // protocol of the last writer
}

// ConfigChange changes the configuration of an agent. The memory service checks that the caller owns it.
type ConfigChange struct {
	Agent    string
	Base     int64                      // version on which the changes are based
	Protocol ownership.Protocol         // protocol that the agent declared
	Delta    map[string]json.RawMessage // an empty value removes the key
}

// Configs stores the configurations of agents.
type Configs interface {
	// GetConfig returns the configuration of an agent. It is empty if it was never written.
	GetConfig(ctx context.Context, agent string) (Configuration, error)
	// PutConfig applies all changes or none, and returns the new configuration. A key that already has the new
	// value is skipped, whatever the base version is, so the call may be repeated.
	//
	// Changes to an older version are rejected, unless the last writer and this one both use the protocol merge.
	// With merge, a change is rejected only if its key changed after the base version. A missing key counts as
	// changed if any key was removed since. Modes: user_invalid_input; revision_mismatch with the facts
	// if_revision and revision, and with the fact key if one key conflicts; resource_quota.
	PutConfig(ctx context.Context, c ConfigChange) (Configuration, error)
}

// Check rejects a change that cannot be stored. Modes: user_invalid_input.
func (c ConfigChange) Check(op string) error {
	wrong := func(format string, args ...any) error {
		return failure.Newf(failure.UserInvalidInput, op, format, args...)
	}
	if !c.Protocol.IsValid() {
		return wrong("protocol %q: use %s or %s", c.Protocol, ownership.Reject, ownership.Merge)
	}
	if len(c.Delta) == 0 || len(c.Delta) > MaxConfigKeys {
		return wrong("delta: %d keys; change 1 to %d in one call", len(c.Delta), MaxConfigKeys)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Delta)) {
		value := c.Delta[key]
		switch {
		case !utf8.ValidString(key) || key == "" || len(key) > MaxStateKeyBytes:
			return wrong("configuration: a key is 1 to %d bytes of UTF-8, and %q is not", MaxStateKeyBytes, key)
		case len(value) > MaxStateValueBytes:
			return wrong("configuration %q: a value of %d bytes is too long; at most %d are", key, len(value), MaxStateValueBytes)
		case len(value) > 0 && (!json.Valid(value) || !utf8.Valid(value)):
			return wrong("configuration %q: the value is not JSON in UTF-8", key)
		}
	}
	return nil
}
