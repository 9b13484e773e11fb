package app

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/troupe-dev/troupe/test/etcdtest"
	"github.com/troupe-dev/troupe/test/redistest"
)

// If the Redis user of the service lacks a permission, the service is not ready, and /readyz says why. It could
// not begin turns.
func TestApp_IsNotReadyWithoutRedisPermissions(t *testing.T) {
	server, etcd := redistest.StartGuarded(t), etcdtest.Start(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr, Username: redistest.Admin, Password: redistest.Admin, DisableIdentity: true})
	defer func() { require.NoError(t, admin.Close()) }()
	may := func(rule string) {
		require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "memory", rule).Err())
	}
	withEtcd := func(cfg *Config) { cfg.Etcd = etcd.Endpoints() }

	swapped := runApp(t, redistest.UserURL("orchestrator", server.Addr), withEtcd)
	swapped.awaitHealth(t, healthpb.HealthCheckResponse_NOT_SERVING)
	swapped.awaitReadyz(t, "redis: "+server.Addr+" does not permit the user of the service to use scripts on keys m:*; grant what users.acl says\n")

	may("-hincrby")
	r := runApp(t, redistest.UserURL("memory", server.Addr), withEtcd)
	r.awaitHealth(t, healthpb.HealthCheckResponse_NOT_SERVING)
	r.awaitReadyz(t, "redis: "+server.Addr+" does not permit the user of the service to use hincrby on keys m:*; grant what users.acl says\n")
	may("+hincrby")
	r.awaitHealth(t, healthpb.HealthCheckResponse_SERVING)
	for _, command := range []string{"xadd", "evalsha_ro", "info"} { // the generation depends on INFO
		may("-" + command)
		r.awaitHealth(t, healthpb.HealthCheckResponse_NOT_SERVING)
		may("+" + command)
		r.awaitHealth(t, healthpb.HealthCheckResponse_SERVING)
	}
}

// awaitReadyz polls until /readyz contains a text.
func (r *runningApp) awaitReadyz(t *testing.T, want string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, body := r.getProbe(t, "/readyz")
		return body == want
	}, 20*time.Second, 5*time.Millisecond)
}
