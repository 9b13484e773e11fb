package redisstore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest"
	"github.com/troupe-dev/troupe/services/memory/internal/generation"
	"github.com/troupe-dev/troupe/test/redistest"
)

// startRedisWithUsers runs a Redis server with the users of deploy/redis and the given flags. It returns a client
// of the admin user. The password of each user is its name.
func startRedisWithUsers(t *testing.T, flags ...string) (addr string, admin *redis.Client, users string) {
	t.Helper()
	source, err := os.ReadFile("../../../../deploy/redis/users.acl")
	require.NoError(t, err)
	lines := []string{"user admin reset on >admin ~* &* +@all"}
	for line := range strings.Lines(string(source)) {
		fields := strings.Fields(line)
		lines = append(lines, strings.TrimSpace(line)+" >"+fields[1])
	}
	file := filepath.Join(t.TempDir(), "users.acl")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	addr = redistest.StartServer(t, append(flags, "--aclfile", file)...).Addr
	admin = redis.NewClient(&redis.Options{Addr: addr, Username: "admin", Password: "admin", DisableIdentity: true})
	t.Cleanup(func() { require.NoError(t, admin.Close()) })
	return addr, admin, string(source)
}

// The store passes the suite with the Redis user of the service, and with a replica that confirms each write. The
// user has exactly the permissions that the service needs. The list below has the requirements of all tests in the
// suite.
// Req: OC-11, LP-17, LP-19, LP-20, LP-22, LP-25, LP-26, LP-27, LP-28, AD-18, AD-19, AD-21, AD-23
func TestStore_PassesTheSuiteWithServicePermissions(t *testing.T) {
	t.Parallel()
	addr, admin, users := startRedisWithUsers(t, "--min-replicas-to-write", "1", "--repl-diskless-sync-delay", "0")
	addReplica(t, addr, "--masteruser", "admin", "--masterauth", "admin")
	secret := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(secret, []byte("memory\n"), 0o600))
	s, err := New(Config{
		URL: "redis://memory@" + addr, Security: redisconn.Security{PasswordFile: secret}, OnConnect: func(string) {},
		Durability: redisconn.D2, ReplicaTime: 10 * time.Second,
		MaxMessages: memorytest.MaxMessages, MaxBytes: memorytest.MaxBytes,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })

	require.NoError(t, s.CheckDurability(t.Context()))
	t.Run("suite", func(t *testing.T) { memorytest.Run(t, func(*testing.T) memory.Store { return s }) })
	_, err = s.Expire(t.Context(), "none", time.Hour)
	require.NoError(t, err)
	_, err = s.Increment(t.Context(), "", 1)
	require.NoError(t, err)
	require.NoError(t, s.StoreMark(t.Context(), generation.Mark{Generation: 1, Identity: "a"}))
	_, err = s.LoadMark(t.Context())
	require.NoError(t, err)
	log, err := admin.ACLLog(t.Context(), 10).Result()
	require.NoError(t, err)
	require.Empty(t, log, "the suite was refused something")

	// The test fails for a permission that no call uses. It does not check the permissions for a Cluster.
	stats, err := admin.InfoMap(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for line := range strings.Lines(users) {
		if !strings.HasPrefix(line, "user memory ") {
			continue
		}
		for f := range strings.FieldsSeq(line) {
			command, ok := strings.CutPrefix(f, "+")
			if !ok || strings.HasPrefix(command, "cluster|") {
				continue
			}
			require.Contains(t, stats["Commandstats"], "cmdstat_"+command, "no operation uses it")
		}
	}

	for _, command := range [][]any{
		{"SET", "o:{default/t1}:rec", "x"},
		{"GETRANGE", "o:{default/t1}:rec", 0, 1},
		{"DEL", "o:{default/t1}:rec"},
		{"SET", "other", "x"},
		{"FLUSHALL"},
		{"KEYS", "*"},
		{"SCAN", 0},
		{"CONFIG", "SET", "appendonly", "no"},
		{"ACL", "LIST"},
		{"SHUTDOWN"},
		{"EVAL", "return redis.call('SET', KEYS[1], 'x')", 1, "o:{default/t1}:rec"},
		{"EVAL", "return redis.call('KEYS', '*')", 0},
	} {
		err := s.db.Do(t.Context(), command...).Err()
		require.Regexp(t, "permission|can't run this command", err.Error(), command)
	}
}

// The service user in users.acl may use exactly the commands that Ping checks, and the few that Ping itself and
// the connections use.
func TestPing_ChecksThePermissionsOfTheUser(t *testing.T) {
	t.Parallel()
	users, err := os.ReadFile("../../../../deploy/redis/users.acl")
	require.NoError(t, err)
	may := map[string]bool{}
	for line := range strings.Lines(string(users)) {
		if strings.HasPrefix(line, "user memory ") {
			for f := range strings.FieldsSeq(line) {
				if command, ok := strings.CutPrefix(f, "+"); ok {
					may[command] = true
				}
			}
		}
	}
	for _, command := range append([]string{"ping", "info", "config|get", "wait", "cluster|shards", "cluster|slots"}, requiredCommands...) {
		require.True(t, may[command], command)
		delete(may, command)
	}
	require.Empty(t, may)
}

func TestStore_DefaultUserIsDisabled(t *testing.T) {
	t.Parallel()
	addr, _, _ := startRedisWithUsers(t)
	for _, url := range []string{"redis://" + addr, "redis://memory:wrong@" + addr, "redis://default:default@" + addr} {
		s := openStore(t, url)
		err := s.Ping(t.Context())
		require.Equal(t, failure.Unknown, failure.ModeOf(err), "error: %v", err)
		require.Contains(t, grpcfailure.ToProto(err).GetMessage(), "credentials")
	}
}
