package inmem

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// configured is the configuration of an agent.
type configured struct {
	memory.Configuration
	changed map[string]int64 // the version that set each key
	removed int64            // the last version that removed any
}

// GetConfig implements memory.Configs.
func (s *Store) GetConfig(_ context.Context, agent string) (memory.Configuration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.configs[agent]; c != nil {
		return c.copied(), nil
	}
	return memory.Configuration{}, nil
}

// PutConfig implements memory.Configs.
func (s *Store) PutConfig(_ context.Context, change memory.ConfigChange) (memory.Configuration, error) {
	const op = "memory.PutConfig"
	if err := memory.CheckConfig(op, change); err != nil {
		return memory.Configuration{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.configs[change.Agent]
	if c == nil {
		c = &configured{Configuration: memory.Configuration{Values: map[string]json.RawMessage{}}, changed: map[string]int64{}}
	}
	delta := maps.Clone(change.Delta)
	maps.DeleteFunc(delta, func(key string, value json.RawMessage) bool { return bytes.Equal(value, c.Values[key]) })
	if len(delta) == 0 {
		return c.copied(), nil
	}
	if err := c.conflict(op, change, delta); err != nil {
		return memory.Configuration{}, err
	}
	after := maps.Clone(c.Values)
	maps.Copy(after, delta)
	size := 0
	maps.DeleteFunc(after, func(_ string, value json.RawMessage) bool { return len(value) == 0 })
	for key, value := range after {
		size += len(key) + len(value)
	}
	if len(after) > memory.MaxConfigKeys || size > memory.MaxConfigBytes {
		return memory.Configuration{}, failure.Newf(failure.ResourceQuota, op, "the configuration of %s would have %d keys and %d bytes; at most %d and %d are: remove some",
			change.Agent, len(after), size, memory.MaxConfigKeys, memory.MaxConfigBytes)
	}
	c.Version, c.Protocol, c.Values = c.Version+1, change.Protocol, after
	for key, value := range delta {
		if len(value) > 0 {
			c.changed[key] = c.Version
			continue
		}
		delete(c.changed, key)
		c.removed = c.Version
	}
	s.configs[change.Agent] = c
	return c.copied(), nil
}

// conflict is why changes to a version that is not the last cannot be made.
func (c *configured) conflict(op string, change memory.ConfigChange, delta map[string]json.RawMessage) error {
	if change.Base == c.Version {
		return nil
	}
	if change.Base > c.Version || change.Protocol != ownership.Merge || c.Protocol != ownership.Merge {
		return otherConfig(op, change, c.Version, "")
	}
	for _, key := range slices.Sorted(maps.Keys(delta)) {
		at, there := c.changed[key]
		if !there {
			at = c.removed
		}
		if at > change.Base {
			return otherConfig(op, change, c.Version, key)
		}
	}
	return nil
}

func otherConfig(op string, change memory.ConfigChange, version int64, key string) error {
	err := failure.Newf(failure.RevisionMismatch, op, "the configuration of %s is at version %d and not %d; read it again and repeat the change", change.Agent, version, change.Base).
		With("if_revision", strconv.FormatInt(change.Base, 10)).With("revision", strconv.FormatInt(version, 10))
	if key != "" {
		err = err.With("key", key)
	}
	return err
}

func (c *configured) copied() memory.Configuration {
	out := c.Configuration
	out.Values = maps.Clone(c.Values)
	return out
}
