package inmem

import (
	"context"
	"sync"

	"github.com/troupe-dev/troupe/internal/registry"
)

// StoreRecords implements registry.StoreRecords. It is safe for concurrent use.
type StoreRecords struct {
	mu      sync.Mutex
	records map[string]storeRecord
}

type storeRecord struct {
	registry.StoreRecord
	revision int64
}

// NewStoreRecords returns an empty set of records.
func NewStoreRecords() *StoreRecords { return &StoreRecords{records: map[string]storeRecord{}} }

// Load implements registry.StoreRecords.
func (s *StoreRecords) Load(ctx context.Context, name string) (registry.StoreRecord, int64, error) {
	if err := ctx.Err(); err != nil {
		return registry.StoreRecord{}, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[name]
	return r.StoreRecord, r.revision, nil
}

// Swap implements registry.StoreRecords.
func (s *StoreRecords) Swap(ctx context.Context, name string, r registry.StoreRecord, revision int64) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records[name].revision != revision {
		return false, nil
	}
	s.records[name] = storeRecord{r, revision + 1}
	return true, nil
}
