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

// The embedded Redis of troupe dev has no users.
func TestPing_SucceedsOnARedisWithoutUsers(t *testing.T) {
	s, err := New(redisconn.Config{URL: "redis://" + miniredis.RunT(t).Addr()}, time.Hour)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Ping(t.Context()))
}

// Ping checks what the user may do, and needs no more itself.
func TestPing_ChecksThePermissionsOfTheUser(t *testing.T) {
	users, err := acl.Users(nil)
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
	for _, command := range append([]string{"ping", "info", "cluster|info", "cluster|nodes", "cluster|shards", "cluster|slots"}, needs.Commands...) {
		require.True(t, may[command], command)
		delete(may, command)
	}
	require.Empty(t, may)
}
