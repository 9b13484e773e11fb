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
	differOps  = flag.Int("differ.ops", 6_000, "how many operations TestStore_BehavesLikeTheInMemoryStore compares")
	differSeed = flag.Uint64("differ.seed", 2, "seed of its operations")
)

// The Redis store and the in-memory store return the same results for the same random calls.
func TestStore_BehavesLikeTheInMemoryStore(t *testing.T) {
	t.Parallel()
	// Redis does not sync writes to disk here, because the test does not depend on durability.
	s := openStore(t, "redis://"+redistest.StartServer(t, "--appendonly", "no").Addr)
	oracle := inmem.New(inmem.Config{MaxMessages: memorytest.MaxMessages, MaxBytes: memorytest.MaxBytes})
	replies := memorytest.Compare(t, oracle, s, *differOps, *differSeed)
	require.Empty(t, replies.Missing(), "replies that were not seen")
}
