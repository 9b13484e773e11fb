package redisstore

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest"
	"github.com/troupe-dev/troupe/test/redistest"
)

var (
	differOps  = flag.Int("differ.ops", 50_000, "how many operations TestStore_BehavesLikeTheInMemoryStore compares")
	differSeed = flag.Uint64("differ.seed", 1, "seed of its operations")
)

// Redis and the in-memory store give the same answers to the same calls.
func TestStore_BehavesLikeTheInMemoryStore(t *testing.T) {
	t.Parallel()
	// The disk does not matter here, so it is not synced.
	s := openStore(t, "redis://"+redistest.New(t, "--appendonly", "no").Addr)
	oracle := inmem.New(inmem.Config{MaxMessages: memorytest.MaxMessages, MaxBytes: memorytest.MaxBytes})
	replies := memorytest.Compare(t, oracle, s, *differOps, *differSeed)
	require.Empty(t, replies.Missing(), "replies that were not seen")
}
