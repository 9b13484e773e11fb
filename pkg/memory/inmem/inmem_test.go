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

func TestStore_KeepJournals(t *testing.T) {
	memorytest.RunKeepJournals(t, func(*testing.T) memory.Store { return New(Config{KeepJournals: memorytest.KeepJournals}) })
}

// Comparing two equal stores reports no difference, and the random calls produce every kind of reply.
func TestCompare_EqualStoresDoNotDiffer(t *testing.T) {
	open := func() memory.Store {
		return New(Config{MaxMessages: memorytest.MaxMessages, MaxBytes: memorytest.MaxBytes})
	}
	replies := memorytest.Compare(t, open(), open(), 10_000, 1)
	require.Empty(t, replies.Missing(), "%v", replies)
}
