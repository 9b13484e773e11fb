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

// Configuration is that of an agent, of the SHARED tier (SO-11, C-25).
type Configuration struct {
	Version  int64 // grows with each change, also over data that went back in time; 0: there never was any
	Values   map[string]json.RawMessage
	Protocol ownership.Protocol // of who changed it last
}

// ConfigChange changes the configuration of an agent. Who may is for the service, which knows who
// calls.
type ConfigChange struct {
	Agent    string
	Base     int64                      // version that the changes were made to
	Protocol ownership.Protocol         // that the agent declared
	Delta    map[string]json.RawMessage // an empty value removes the key
}

// Configs keeps the configurations of agents.
type Configs interface {
	// GetConfig returns the configuration of an agent; one that nobody wrote is empty.
	GetConfig(ctx context.Context, agent string) (Configuration, error)
	// PutConfig makes all changes or none, and returns what they led to. What is so already
	// needs no change, whatever the base, so the call may be repeated. Changes to an older
	// version are refused, but where the last writer and this one say merge: then only those
	// are whose keys others changed since; a key that is not there counts as changed when any
	// was removed. Modes: user_invalid_input; revision_mismatch, with the facts if_revision,
	// revision and, where one decides, key; resource_quota.
	PutConfig(ctx context.Context, c ConfigChange) (Configuration, error)
}

// CheckConfig returns why a change cannot be stored; nil when it can. Modes: user_invalid_input.
func CheckConfig(op string, c ConfigChange) error {
	wrong := func(format string, args ...any) error {
		return failure.Newf(failure.UserInvalidInput, op, format, args...)
	}
	if !c.Protocol.Known() {
		return wrong("protocol %q: use %s or %s", c.Protocol, ownership.Reject, ownership.Merge)
	}
	if len(c.Delta) == 0 || len(c.Delta) > MaxConfigKeys {
		return wrong("delta: %d keys; change 1 to %d in one call", len(c.Delta), MaxConfigKeys)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Delta)) {
		value := c.Delta[key]
		switch {
		case !utf8.ValidString(key) || key == "" || len(key) > MaxStateKey:
			return wrong("configuration: a key is 1 to %d bytes of UTF-8, and %q is not", MaxStateKey, key)
		case len(value) > MaxStateValue:
			return wrong("configuration %q: a value of %d bytes is too long; at most %d are", key, len(value), MaxStateValue)
		case len(value) > 0 && (!json.Valid(value) || !utf8.Valid(value)):
			return wrong("configuration %q: the value is not JSON in UTF-8", key)
		}
	}
	return nil
}
