package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/test/parallel"
	"github.com/troupe-dev/troupe/test/redistest"
)

func TestMain(m *testing.M) {
	parallel.SetMinimum(4)
	goleak.VerifyTestMain(m)
}

// registeredScript returns the script that is registered under name.
func registeredScript(name string) *redis.Script {
	s := db.Scripts()[name]
	if s == nil {
		panic("no script is named " + name)
	}
	return s
}

func openStore(t *testing.T, url string) *Store {
	t.Helper()
	s, err := New(Config{URL: url, MaxMessages: memorytest.MaxMessages, MaxBytes: memorytest.MaxBytes})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestStore_OnMiniredis(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+miniredis.RunT(t).Addr())
	memorytest.Run(t, func(*testing.T) memory.Store { return s })
}

// The suite passes on a Redis Cluster. A Cluster rejects a script that uses a key of another slot or a key that is
// not in KEYS.
func TestStore_OnCluster(t *testing.T) {
	t.Parallel()
	s := openStore(t, redistest.StartCluster(t))
	require.NoError(t, s.CheckDurability(t.Context()))
	memorytest.Run(t, func(*testing.T) memory.Store { return s })
}

// eventually calls ok until it returns true. It fails the test after a time that only a broken test reaches.
func eventually(t *testing.T, ok func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok(ctx) {
		select {
		case <-ctx.Done():
			require.FailNow(t, "did not happen in time")
		case <-tick.C:
		}
	}
}
