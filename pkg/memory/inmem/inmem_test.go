package inmem

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest"
)

func TestStore(t *testing.T) {
	memorytest.Run(t, func(*testing.T) memory.Store {
		return New(Config{MaxMessages: memorytest.MaxMessages, MaxBytes: memorytest.MaxBytes})
	})
}

func TestStore_Recorded(t *testing.T) {
	memorytest.RunKeepJournals(t, func(*testing.T) memory.Store { return New(Config{KeepJournals: memorytest.KeepJournals}) })
}

// TestStore_IsLikeItself is a check of Differ: of two stores that are the same it says so,
// and it gets to hear every reply.
func TestStore_IsLikeItself(t *testing.T) {
	open := func() memory.Store {
		return New(Config{MaxMessages: memorytest.MaxMessages, MaxBytes: memorytest.MaxBytes})
	}
	replies := memorytest.Compare(t, open(), open(), 10_000, 1)
	require.Empty(t, replies.Missing(), "%v", replies)
}
