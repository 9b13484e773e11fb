package store_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/services/standalone/store"
)

// childFolder is an environment variable. If it is set, this test program only runs a Redis in that folder.
const childFolder = "TROUPE_TEST_CHILD_FOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childFolder); dir != "" {
		os.Exit(serveRedis(dir))
	}
	goleak.VerifyTestMain(m)
}

func serveRedis(dir string) int {
	r, err := store.NewRedis(store.RedisConfig{DataDir: dir, Log: zap.NewNop()})
	if err != nil {
		return 1
	}
	_ = r.Run(context.Background(), func() { _, _ = os.Stdout.WriteString("ready\n") })
	return 1
}

// startPart runs a part until stop is called or the test ends. It returns once the part is ready.
func startPart(t *testing.T, run func(context.Context, func()) error) (stop func(), ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, result := make(chan struct{}), make(chan error, 1)
	go func() { result <- run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-result:
		cancel()
		require.FailNow(t, "ended before it was ready", "%v", err)
	}
	stopped := false
	stop = func() {
		cancel()
		if !stopped {
			stopped = true
			require.NoError(t, <-result)
		}
	}
	return stop, result
}
