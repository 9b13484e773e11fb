package ownership

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Config is the configuration of an agent in the RAM of one instance. It belongs to the SHARED tier: every agent
// may read it, and only an agent that declares a protocol may write its own (SO-11). Changes stay in this instance
// until Save is called or the agent shuts down. Config is safe for concurrent use.
type Config struct {
	*configData
	onRejected func(*failure.Error) // called with each rejected write (may be nil)
}

// configData holds the data that all views of a configuration share.
type configData struct {
	agent    string
	protocol Protocol
	saveMu   sync.Mutex // held during a Save or Reload

	mu      sync.RWMutex
	store   ConfigStore
	version int64 // the version to which the changes apply
	stored  map[string]json.RawMessage
	changes map[string]json.RawMessage // an empty value removes
}

// ConfigStore stores the configurations of agents.
type ConfigStore interface {
	// Load returns the configuration of an agent with its version.
	Load(ctx context.Context, agent string) (version int64, values map[string]json.RawMessage, err error)
	// Save applies changes to a version of the agent's own configuration and returns the result. Modes:
	// revision_mismatch if another writer changed it meanwhile and the protocol cannot merge the changes.
	Save(ctx context.Context, base int64, changes map[string]json.RawMessage) (version int64, values map[string]json.RawMessage, err error)
}

// NewConfig returns the configuration of an agent, which is empty until Reload. An agent without a protocol does
// not own its configuration and can only read it.
func NewConfig(agent string, p Protocol) *Config {
	return &Config{configData: &configData{agent: agent, protocol: p}}
}

// WithRejectionHandler returns a view of the configuration that calls onRejected with the error of each rejected
// write.
func (c *Config) WithRejectionHandler(onRejected func(*failure.Error)) *Config {
	return &Config{configData: c.configData, onRejected: onRejected}
}

// Protocol returns the protocol that the agent declared (empty if the agent does not own its configuration).
func (c *Config) Protocol() Protocol { return c.protocol }

// SetStore sets the store of the configuration (nil means none).
func (c *Config) SetStore(store ConfigStore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store = store
}

// Version returns the stored version that this instance last read (0 if it has read none).
func (c *Config) Version() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.version
}

// Get returns the JSON value of a key and whether the key is set.
func (c *Config) Get(key string) (json.RawMessage, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	value, changed := c.changes[key]
	if !changed {
		value = c.stored[key]
	}
	return bytes.Clone(value), len(value) > 0
}

// Keys returns the keys that are set, sorted.
func (c *Config) Keys() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := maps.Clone(c.stored)
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	maps.Copy(all, c.changes)
	maps.DeleteFunc(all, func(_ string, value json.RawMessage) bool { return len(value) == 0 })
	return slices.Sorted(maps.Keys(all))
}

// Set sets a key to a value that encodes as JSON. Modes: state_violation if the agent does not own its
// configuration, user_invalid_input if the value does not encode.
func (c *Config) Set(key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return failure.Newf(failure.UserInvalidInput, "config.set", "configuration %q: the value cannot be written as JSON", key).Because(err)
	}
	return c.change("config.set", key, text)
}

// Delete removes a key. Modes: state_violation.
func (c *Config) Delete(key string) error { return c.change("config.delete", key, nil) }

func (c *Config) change(op, key string, value json.RawMessage) error {
	if c.protocol == "" {
		err := NewViolationError(op, "config", Shared, c.agent)
		if c.onRejected != nil {
			c.onRejected(err)
		}
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes == nil {
		c.changes = map[string]json.RawMessage{}
	}
	c.changes[key] = value
	return nil
}

// Reload reads the configuration from the store and drops unsaved changes. Modes: agent_state without a memory
// service.
func (c *Config) Reload(ctx context.Context) error {
	c.saveMu.Lock()
	defer c.saveMu.Unlock()
	store, err := c.storeOrError()
	if err != nil {
		return err
	}
	version, values, err := store.Load(ctx, c.agent)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version, c.stored, c.changes = version, values, nil
	return nil
}

// LoadAgent returns the stored configuration of another agent. Modes: agent_state without a memory service.
func (c *Config) LoadAgent(ctx context.Context, agent string) (map[string]json.RawMessage, error) {
	store, err := c.storeOrError()
	if err != nil {
		return nil, err
	}
	_, values, err := store.Load(ctx, agent)
	return values, err
}

// Save stores all changes of this instance or none, and reads the changes of others. Modes: agent_state without a
// memory service; revision_mismatch if another writer changed the configuration and the protocol cannot merge the
// changes. The changes are then kept until Reload.
func (c *Config) Save(ctx context.Context) error {
	c.saveMu.Lock()
	defer c.saveMu.Unlock()
	c.mu.RLock()
	base, changes := c.version, maps.Clone(c.changes)
	c.mu.RUnlock()
	if len(changes) == 0 {
		return nil
	}
	store, err := c.storeOrError()
	if err != nil {
		return err
	}
	version, values, err := store.Save(ctx, base, changes)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version, c.stored = version, values
	maps.DeleteFunc(c.changes, func(key string, value json.RawMessage) bool { // except changes made meanwhile
		saved, ok := changes[key]
		return ok && bytes.Equal(saved, value)
	})
	return nil
}

// HasStore reports whether the configuration can be loaded and saved, which needs a memory service.
func (c *Config) HasStore() bool {
	_, err := c.storeOrError()
	return err == nil
}

func (c *Config) storeOrError() (ConfigStore, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.store == nil {
		return nil, failure.New(failure.AgentState, "config", "the configuration cannot be stored: the agent runs without a memory service")
	}
	return c.store, nil
}
