// Package store is a memory.Store of an author: the store in RAM, with a count of the turns that begin.
package store

import (
	"context"
	"sync/atomic"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
)

// Store counts the turns that begin.
type Store struct {
	memory.Store

	begun atomic.Int64
}

// New returns an empty store whose sessions have at most so many messages and bytes.
func New(maxMessages, maxBytes int64) *Store {
	return &Store{Store: inmem.New(inmem.Config{MaxMessages: maxMessages, MaxBytes: maxBytes})}
}

// BeginTurn counts the turn and begins it.
func (s *Store) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	s.begun.Add(1)
	return s.Store.BeginTurn(ctx, b)
}
