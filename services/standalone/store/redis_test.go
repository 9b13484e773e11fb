package store_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/services/standalone/store"
)

func newRedis(t *testing.T, dir string) *store.Redis {
	t.Helper()
	r, err := store.NewRedis(store.RedisConfig{DataDir: dir, Log: zap.NewNop()})
	require.NoError(t, err)
	return r
}

func redisClient(t *testing.T, r *store.Redis) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(r.URL())
	require.NoError(t, err)
	options.MaxRetries = -1
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// pid of the server, by its own word.
func pid(t *testing.T, client *redis.Client) int {
	t.Helper()
	info, err := client.Info(t.Context(), "server").Result()
	require.NoError(t, err)
	_, after, found := strings.Cut(info, "process_id:")
	require.True(t, found)
	n, err := strconv.Atoi(strings.Fields(after)[0])
	require.NoError(t, err)
	return n
}

func TestRedis_KeepsItsDataOverARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "redis")
	first := newRedis(t, dir)
	stop, _ := start(t, first.Run)
	require.NoError(t, redisClient(t, first).Set(t.Context(), "k", "v", 0).Err())
	stop()

	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	second := newRedis(t, dir)
	stop, _ = start(t, second.Run)
	defer stop()
	got, err := redisClient(t, second).Get(t.Context(), "k").Result()
	require.NoError(t, err)
	require.Equal(t, "v", got)
}

func TestRedis_IsDurableAndNotOnTheNetwork(t *testing.T) {
	r := newRedis(t, t.TempDir())
	stop, _ := start(t, r.Run)
	defer stop()
	client := redisClient(t, r)
	for setting, want := range map[string]string{
		"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no",
		"save": "", "maxmemory-policy": "noeviction", "port": "0", "unixsocketperm": "700",
	} {
		got, err := client.ConfigGet(t.Context(), setting).Result()
		require.NoError(t, err)
		require.Equal(t, want, got[setting], setting)
	}
}

func TestRedis_NoticesThatItsServerIsKilled(t *testing.T) {
	dir := t.TempDir()
	r := newRedis(t, dir)
	_, ended := start(t, r.Run)
	client := redisClient(t, r)
	require.NoError(t, client.Set(t.Context(), "k", "v", 0).Err())
	require.NoError(t, syscall.Kill(pid(t, client), syscall.SIGKILL))
	err := <-ended
	require.ErrorContains(t, err, "ended by itself")
	require.ErrorContains(t, err, "killed")

	stop, _ := start(t, newRedis(t, dir).Run)
	defer stop()
	require.Equal(t, "v", client.Get(t.Context(), "k").Val(), "acknowledged before the kill")
}

func TestRedis_IsNotInTheProcessGroupOfTheTerminal(t *testing.T) {
	r := newRedis(t, t.TempDir())
	stop, _ := start(t, r.Run)
	defer stop()
	child := pid(t, redisClient(t, r))
	group, err := syscall.Getpgid(child)
	require.NoError(t, err)
	require.Equal(t, child, group)
}

func TestRedis_DoesNotOutliveAKilledParent(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	parent := exec.CommandContext(ctx, os.Args[0])
	parent.Env = append(os.Environ(), childFolder+"="+dir)
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)

	client := redisClient(t, newRedis(t, dir))
	blocked := client.Subscribe(ctx, "nothing") // its connection ends with the server
	defer func() { _ = blocked.Close() }()      // by then the server is gone
	_, err = blocked.Receive(ctx)
	require.NoError(t, err)
	require.NoError(t, parent.Process.Kill())
	_, err = blocked.Receive(ctx)
	require.Error(t, err)
	require.NoError(t, ctx.Err(), "the server still runs")
	require.Error(t, parent.Wait(), "it was killed")
}

func TestRedis_SaysWhyItDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "appendonlydir"), nil, 0o600))
	err := newRedis(t, dir).Run(t.Context(), func() {})
	require.ErrorContains(t, err, filepath.Join(dir, "redis.log"))
}

func TestRedis_RefusesAFolderInUse(t *testing.T) {
	dir := t.TempDir()
	stop, _ := start(t, newRedis(t, dir).Run)
	defer stop()
	err := newRedis(t, dir).Run(t.Context(), func() {})
	require.ErrorContains(t, err, "is in use by another process")
}

func TestNewRedis_RefusesAPathTooLongForASocket(t *testing.T) {
	_, err := store.NewRedis(store.RedisConfig{DataDir: "/" + strings.Repeat("d", 100), Log: zap.NewNop()})
	require.ErrorContains(t, err, "choose one with a shorter path")
}

func TestRedis_ImitationServesAndWarns(t *testing.T) {
	t.Setenv("PATH", "")
	core, logs := observer.New(zapcore.WarnLevel)
	r, err := store.NewRedis(store.RedisConfig{DataDir: t.TempDir(), Log: zap.New(core)})
	require.NoError(t, err)
	require.Equal(t, 1, logs.FilterMessageSnippet("state ends with this process").Len())

	stop, _ := start(t, r.Run)
	defer stop()
	client := redisClient(t, r)
	require.NoError(t, client.Set(t.Context(), "k", "v", 0).Err())
	require.Equal(t, "v", client.Get(t.Context(), "k").Val())
}
