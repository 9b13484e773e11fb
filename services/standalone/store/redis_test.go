package store_test

import (
	"bufio"
	"context"
	"net/url"
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

func redisClient(t *testing.T, r *store.Redis) *redis.Client { return redisAs(t, r.URL(store.Admin)) }

func redisAs(t *testing.T, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	options.MaxRetries = -1
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// serverPID returns the process id that the server reports.
func serverPID(t *testing.T, client *redis.Client) int {
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
	stop, _ := startPart(t, first.Run)
	require.NoError(t, redisClient(t, first).Set(t.Context(), "k", "v", 0).Err())
	require.NoError(t, redisClient(t, first).Eval(t.Context(), "redis.call('SET', KEYS[1], 1) return redis.call('INCR', KEYS[1])", []string{"n"}).Err())
	stop()

	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	second := newRedis(t, dir)
	stop, _ = startPart(t, second.Run)
	defer stop()
	got, err := redisClient(t, second).Get(t.Context(), "k").Result()
	require.NoError(t, err)
	require.Equal(t, "v", got)
	require.Equal(t, "2", redisClient(t, second).Get(t.Context(), "n").Val(), "a script is read back as the user default")
}

func TestRedis_IsDurableAndNotOnTheNetwork(t *testing.T) {
	r := newRedis(t, t.TempDir())
	stop, _ := startPart(t, r.Run)
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

// Each user can access only its own keys, and no client connects without a password. Only the owner of the folder
// can read the passwords.
func TestRedis_RequiresUsersWithPasswords(t *testing.T) {
	dir := t.TempDir()
	r := newRedis(t, dir)
	stop, _ := startPart(t, r.Run)
	defer stop()
	info, err := os.Stat(filepath.Join(dir, "users.acl"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, redisAs(t, r.URL("memory")).HSet(t.Context(), "m:x", "k", "v").Err())
	require.NoError(t, redisAs(t, r.URL("orchestrator")).HSet(t.Context(), "o:x", "k", "v").Err())
	require.ErrorContains(t, redisAs(t, r.URL("memory")).HSet(t.Context(), "o:x", "k", "v").Err(), "NOPERM")
	require.ErrorContains(t, redisAs(t, r.URL("orchestrator")).HSet(t.Context(), "m:x", "k", "v").Err(), "NOPERM")
	require.ErrorContains(t, redisAs(t, "unix://"+filepath.Join(dir, "redis.sock")).Ping(t.Context()).Err(), "NOAUTH")
	require.NotEqual(t, r.URL("memory"), newRedis(t, dir).URL("memory"), "each process has passwords of its own")
}

func TestRedis_FailsWhenItsServerIsKilled(t *testing.T) {
	dir := t.TempDir()
	r := newRedis(t, dir)
	_, ended := startPart(t, r.Run)
	client := redisClient(t, r)
	require.NoError(t, client.Set(t.Context(), "k", "v", 0).Err())
	require.NoError(t, syscall.Kill(serverPID(t, client), syscall.SIGKILL))
	err := <-ended
	require.ErrorContains(t, err, "ended by itself")
	require.ErrorContains(t, err, "killed")

	again := newRedis(t, dir)
	stop, _ := startPart(t, again.Run)
	defer stop()
	require.Equal(t, "v", redisClient(t, again).Get(t.Context(), "k").Val(), "acknowledged before the kill")
}

func TestRedis_RunsInItsOwnProcessGroup(t *testing.T) {
	r := newRedis(t, t.TempDir())
	stop, _ := startPart(t, r.Run)
	defer stop()
	child := serverPID(t, redisClient(t, r))
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

	users, err := os.ReadFile(filepath.Join(dir, "users.acl"))
	require.NoError(t, err)
	_, password, found := strings.Cut(string(users), "user admin reset on ~* &* +@all >")
	require.True(t, found)
	client := redisAs(t, "unix://admin:"+strings.TrimSpace(password)+"@"+filepath.Join(dir, "redis.sock"))
	blocked := client.Subscribe(ctx, "nothing") // its connection ends with the server
	defer func() { _ = blocked.Close() }()      // the server has ended by then
	_, err = blocked.Receive(ctx)
	require.NoError(t, err)
	require.NoError(t, parent.Process.Kill())
	_, err = blocked.Receive(ctx)
	require.Error(t, err)
	require.NoError(t, ctx.Err(), "the server still runs")
	require.Error(t, parent.Wait(), "it was killed")
}

func TestRedis_ReportsWhyItDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "appendonlydir"), nil, 0o600))
	err := newRedis(t, dir).Run(t.Context(), func() {})
	require.ErrorContains(t, err, filepath.Join(dir, "redis.log"))
}

func TestRedis_RejectsAFolderInUse(t *testing.T) {
	dir := t.TempDir()
	stop, _ := startPart(t, newRedis(t, dir).Run)
	defer stop()
	err := newRedis(t, dir).Run(t.Context(), func() {})
	require.ErrorContains(t, err, "is in use by another process")
}

func TestNewRedis_RejectsAPathTooLongForASocket(t *testing.T) {
	_, err := store.NewRedis(store.RedisConfig{DataDir: "/" + strings.Repeat("d", 100), Log: zap.NewNop()})
	require.ErrorContains(t, err, "choose one with a shorter path")
}

// The imitation requires a password from every client, because it listens on a loopback port.
func TestRedis_ImitationRequiresAPasswordAndLogsAWarning(t *testing.T) {
	t.Setenv("PATH", "")
	core, logs := observer.New(zapcore.WarnLevel)
	r, err := store.NewRedis(store.RedisConfig{DataDir: t.TempDir(), Log: zap.New(core)})
	require.NoError(t, err)
	require.Equal(t, 1, logs.FilterMessageSnippet("state ends with this process, and its users may use each other's keys").Len())

	stop, _ := startPart(t, r.Run)
	defer stop()
	for _, user := range []string{"memory", "orchestrator"} {
		client := redisAs(t, r.URL(user))
		require.NoError(t, client.Set(t.Context(), user, "v", 0).Err())
		require.Equal(t, "v", client.Get(t.Context(), user).Val())
	}
	known, err := url.Parse(r.URL("memory"))
	require.NoError(t, err)
	for _, user := range []*url.Userinfo{nil, url.UserPassword("memory", "memory"), url.UserPassword("default", ""), url.UserPassword("nobody", "x")} {
		other := *known
		other.User = user
		require.Regexp(t, "NOAUTH|WRONGPASS", redisAs(t, other.String()).Get(t.Context(), "memory").Err(), user)
	}
}
