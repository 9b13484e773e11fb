// Package store is a memory.Store written outside of Troupe: the store in RAM, which also counts the turns that
// begin.
package store

import (
	"context"
	"sync/atomic"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
)

// Store is a store in RAM that counts the turns that begin.
type Store struct {
	memory.Store

	begun atomic.Int64
}

// New returns an empty store with limits on the messages and bytes of a session.
func New(maxMessages, maxBytes int64) *Store {
	return &Store{Store: inmem.New(inmem.Config{MaxMessages: maxMessages, MaxBytes: maxBytes})}
}

// BeginTurn counts the turn and begins it.
func (s *Store) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	s.begun.Add(1)
	return s.Store.BeginTurn(ctx, b)
}
