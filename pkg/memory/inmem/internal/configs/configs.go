// Package configs stores the configurations of agents.
package configs

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/db"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// Configs implements memory.Configs. It is safe for concurrent use.
type Configs struct {
	db      *db.DB             // its lock guards byAgent
	byAgent map[string]*config // only agents whose configuration was written
}

// New returns a configuration store that uses the lock of d.
func New(d *db.DB) *Configs { return &Configs{d, map[string]*config{}} }

// config is the configuration of one agent.
type config struct {
	memory.Configuration
	changedIn   map[string]int64 // version that last set each key
	lastRemoval int64            // the last version that removed a key
}

func (c *config) snapshot() memory.Configuration {
	out := c.Configuration
	out.Values = maps.Clone(c.Values)
	return out
}

// GetConfig implements memory.Configs.
func (s *Configs) GetConfig(_ context.Context, agent string) (memory.Configuration, error) {
	s.db.Lock()
	defer s.db.Unlock()
	if c := s.byAgent[agent]; c != nil {
		return c.snapshot(), nil
	}
	return memory.Configuration{}, nil
}

// PutConfig implements memory.Configs.
func (s *Configs) PutConfig(_ context.Context, change memory.ConfigChange) (memory.Configuration, error) {
	const op = "memory.PutConfig"
	if err := change.Check(op); err != nil {
		return memory.Configuration{}, err
	}
	s.db.Lock()
	defer s.db.Unlock()
	c := s.byAgent[change.Agent]
	if c == nil {
		c = &config{Configuration: memory.Configuration{Values: map[string]json.RawMessage{}}, changedIn: map[string]int64{}}
	}
	delta := maps.Clone(change.Delta)
	maps.DeleteFunc(delta, func(key string, value json.RawMessage) bool { return bytes.Equal(value, c.Values[key]) })
	if len(delta) == 0 {
		return c.snapshot(), nil
	}
	if err := c.checkConflict(op, change, delta); err != nil {
		return memory.Configuration{}, err
	}
	after := maps.Clone(c.Values)
	maps.Copy(after, delta)
	maps.DeleteFunc(after, func(_ string, value json.RawMessage) bool { return len(value) == 0 })
	if err := checkSize(op, change.Agent, after); err != nil {
		return memory.Configuration{}, err
	}
	c.applyChange(change.Protocol, after, delta)
	s.byAgent[change.Agent] = c
	return c.snapshot(), nil
}

// applyChange stores the values in after, the result of applying delta, as a new version.
func (c *config) applyChange(protocol ownership.Protocol, after, delta map[string]json.RawMessage) {
	c.Version, c.Protocol, c.Values = c.Version+1, protocol, after
	for key, value := range delta {
		if len(value) > 0 {
			c.changedIn[key] = c.Version
			continue
		}
		delete(c.changedIn, key)
		c.lastRemoval = c.Version
	}
}

// checkConflict rejects a change whose base is not the current version. It accepts an older base if all writers
// use merge and no key of the change has changed since. Modes: revision_mismatch.
func (c *config) checkConflict(op string, change memory.ConfigChange, delta map[string]json.RawMessage) error {
	if change.Base == c.Version {
		return nil
	}
	if change.Base > c.Version || change.Protocol != ownership.Merge || c.Protocol != ownership.Merge {
		return conflictError(op, change, c.Version, "")
	}
	for _, key := range slices.Sorted(maps.Keys(delta)) {
		changed, exists := c.changedIn[key]
		if !exists {
			changed = c.lastRemoval
		}
		if changed > change.Base {
			return conflictError(op, change, c.Version, key)
		}
	}
	return nil
}

// conflictError returns the error for a change that conflicts with an earlier one. The key is empty if the
// conflict concerns the whole version.
func conflictError(op string, change memory.ConfigChange, version int64, key string) error {
	err := failure.Newf(failure.RevisionMismatch, op, "the configuration of %s is at version %d and not %d; read it again and repeat the change",
		change.Agent, version, change.Base).
		With("if_revision", db.FormatDecimal(change.Base)).With("revision", db.FormatDecimal(version))
	if key != "" {
		err = err.With("key", key)
	}
	return err
}

// checkSize rejects values that exceed the limits of a configuration. Modes: resource_quota.
func checkSize(op, agent string, values map[string]json.RawMessage) error {
	size := 0
	for key, value := range values {
		size += len(key) + len(value)
	}
	if len(values) <= memory.MaxConfigKeys && size <= memory.MaxConfigBytes {
		return nil
	}
	return failure.Newf(failure.ResourceQuota, op,
		"the configuration of %s would have %d keys and %d bytes; at most %d and %d are allowed: remove some",
		agent, len(values), size, memory.MaxConfigKeys, memory.MaxConfigBytes)
}
