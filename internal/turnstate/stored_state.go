package turnstate

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/troupe-dev/troupe/internal/statechange"
)

// StoredState caches the state in the store. A turn reads it once and shares it with all forks of its memory. The zero value
// has not read anything. It is safe for concurrent use.
type StoredState struct {
	mu              sync.Mutex
	values          map[string]json.RawMessage // nil until they are read
	revisions       map[string]int64           // of keys that sessions share
	untrustedSource string                     // source of untrusted text in the values
}

// StateReader reads the state of a session.
type StateReader interface {
	State(ctx context.Context) (values map[string]json.RawMessage, revisions map[string]int64, untrusted string, err error)
}

// Load reads the state once per turn (a nil store has none). No other turn can change the session's own keys in the meantime,
// because this turn holds the session's lease.
func (s *StoredState) Load(ctx context.Context, store StateReader) (map[string]json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values != nil || store == nil {
		return s.values, nil
	}
	values, revisions, untrusted, err := store.State(ctx)
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
func (s *StoredState) Value(key string) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[key]
}

// Revision returns the revision of a key when the turn read the state, or statechange.Unread.
func (s *StoredState) Revision(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		return statechange.Unread
	}
	return s.revisions[key]
}

// UntrustedSource returns the source of untrusted text in the state (empty if there is none, or it was not read).
func (s *StoredState) UntrustedSource() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.untrustedSource
}
