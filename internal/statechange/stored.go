package statechange

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
)

// Stored caches the state in the store. A turn reads it once and shares it with all forks of its memory. The zero Stored
// is ready for use. It is safe for concurrent use.
type Stored struct {
	mu              sync.Mutex
	values          map[string]json.RawMessage // nil until they are read
	revisions       map[string]int64           // of keys that sessions share
	untrustedSource string                     // source of untrusted text in the values
}

// Load returns the state, which read reads once per turn. No other turn can change the session's own keys in the meantime,
// because this turn holds the session's lease.
func (s *Stored) Load(ctx context.Context,
	read func(context.Context) (values map[string]json.RawMessage, revisions map[string]int64, untrusted string, err error),
) (map[string]json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values != nil {
		return s.values, nil
	}
	values, revisions, untrusted, err := read(ctx)
	if err != nil {
		return nil, fmt.Errorf("load state: %w", err)
	}
	if values == nil {
		values = map[string]json.RawMessage{}
	}
	s.values, s.revisions, s.untrustedSource = values, revisions, untrusted
	return values, nil
}

// Value returns the stored value of a key (nil if it does not exist, or the turn has not read the state).
func (s *Stored) Value(key string) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[key]
}

// Revision returns the revision of a key when the turn read the state, or Unread.
func (s *Stored) Revision(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		return Unread
	}
	return s.revisions[key]
}

// Untrusted returns the source of untrusted text in the state (empty if there is none, or the turn has not read it).
func (s *Stored) Untrusted() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.untrustedSource
}

// Collect copies changes into a map, which it creates if it is nil.
func Collect[V any](into *map[string]V, changes map[string]V) {
	if *into == nil {
		*into = map[string]V{}
	}
	maps.Copy(*into, changes)
}
