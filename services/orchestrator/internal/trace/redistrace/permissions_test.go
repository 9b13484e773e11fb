package redistrace

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	acl "github.com/troupe-dev/troupe/deploy/redis"
	"github.com/troupe-dev/troupe/internal/redisconn"
)

// Ping succeeds on a Redis without configured users, such as the embedded Redis of troupe dev.
func TestPing_SucceedsOnARedisWithoutUsers(t *testing.T) {
	s, err := New(redisconn.Config{URL: "redis://" + miniredis.RunT(t).Addr()}, time.Hour)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Ping(t.Context()))
}

// Ping fails when the user lacks a permission that the service needs. Ping itself needs no further permission.
func TestPing_ChecksThePermissionsOfTheUser(t *testing.T) {
	users, err := acl.UsersACL(nil)
	require.NoError(t, err)
	may := map[string]bool{}
	for line := range strings.Lines(users) {
		if strings.HasPrefix(line, "user orchestrator ") {
			for f := range strings.FieldsSeq(line) {
				if command, ok := strings.CutPrefix(f, "+"); ok {
					may[command] = true
				}
			}
		}
	}
	for _, command := range append([]string{"ping", "info", "cluster|info", "cluster|nodes", "cluster|shards", "cluster|slots"}, requiredCommands.Commands...) {
		require.True(t, may[command], command)
		delete(may, command)
	}
	require.Empty(t, may)
}
