package redis_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	acl "github.com/troupe-dev/troupe/deploy/redis"
	"github.com/troupe-dev/troupe/test/redistest"
)

func TestUsersACL_SetsPasswords(t *testing.T) {
	file, err := acl.UsersACL(map[string]string{"memory": "secret"})
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(file), "\n")
	require.Len(t, lines, 3)
	require.Equal(t, "user default reset off ~* &* +@all", lines[0])
	require.Regexp(t, "^user memory .* >secret$", lines[1])
	require.NotContains(t, lines[2], ">")
	_, err = acl.UsersACL(map[string]string{"nobody": "secret"})
	require.ErrorContains(t, err, `no users ["nobody"]`)
}

// Redis replays its append-only file as the user default, and skips commands that this user may not run. The user
// default therefore has all rights, but is disabled and cannot log in.
func TestUsers_DataSurvivesARestart(t *testing.T) {
	server := redistest.StartGuarded(t)
	for user, key := range map[string]string{"memory": "m:x", "orchestrator": "o:x"} {
		require.True(t, redistest.MayRun(t, redistest.UserURL(user, server.Addr),
			"EVAL", "redis.call('HSET', KEYS[1], 'a', 1) return redis.call('HSET', KEYS[1], 'b', 2)", 1, key))
	}
	server.Kill()
	server.Start()
	admin := redis.NewClient(&redis.Options{Addr: server.Addr, Username: redistest.Admin, Password: redistest.Admin, DisableIdentity: true})
	defer func() { require.NoError(t, admin.Close()) }()
	for _, key := range []string{"m:x", "o:x"} {
		require.Equal(t, map[string]string{"a": "1", "b": "2"}, admin.HGetAll(t.Context(), key).Val(), key)
	}
	for _, url := range []string{"redis://" + server.Addr, "redis://default@" + server.Addr, "redis://default:default@" + server.Addr} {
		require.False(t, redistest.MayRun(t, url, "HGETALL", "m:x"), url)
	}
}
