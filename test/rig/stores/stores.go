// Package stores runs the Redis and the etcd of a mesh under test, and shows what they hold.
package stores

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/troupe-dev/troupe/internal/registry/etcdregistry/etcdauth"
	"github.com/troupe-dev/troupe/test/etcdtest"
	"github.com/troupe-dev/troupe/test/redistest"
)

// rewriteTimeout bounds how long Redis may take to rewrite its append-only file on a busy machine.
const rewriteTimeout = 60 * time.Second

// Access selects who may use the stores.
type Access int

// The accesses.
const (
	Guarded Access = iota // services may use the stores as in production, each with its own rights
	Open                  // Redis has users, and services are Admin; etcd authenticates no clients
	Plain                 // neither Redis nor etcd authenticates clients
)

// Config configures the stores.
type Config struct {
	Access Access
	DevCA  string   // folder of the CA that etcd gets its certificates from, if it is guarded
	Agents []string // agents whose workers may use a guarded etcd
}

// Stores holds a running Redis and a running etcd. Both keep their data when they are stopped and started. The
// methods fail the test on errors.
type Stores struct {
	Redis *redistest.Server
	Etcd  *etcdtest.Etcd

	t    testing.TB
	cfg  Config
	root *clientv3.Client // etcd client with all rights (nil until it is needed)
}

// Start starts the stores, which run until the test ends.
func Start(t testing.TB, cfg Config) *Stores {
	t.Helper()
	s := &Stores{t: t, cfg: cfg}
	switch cfg.Access {
	case Guarded:
		s.Redis, s.Etcd = redistest.StartGuarded(t), etcdtest.StartGuarded(t, cfg.DevCA, cfg.Agents...)
	case Open:
		s.Redis, s.Etcd = redistest.StartGuarded(t), etcdtest.Start(t)
	case Plain:
		s.Redis, s.Etcd = redistest.StartServer(t), etcdtest.Start(t)
	}
	return s
}

// RedisURL returns the URL with which a user connects to Redis.
func (s *Stores) RedisURL(user string) string {
	switch s.cfg.Access {
	case Plain:
		return "redis://" + s.Redis.Addr + "/0"
	case Open:
		user = redistest.Admin
	case Guarded:
	}
	return redistest.UserURL(user, s.Redis.Addr)
}

// AddAgent allows the workers of one more agent to use etcd.
func (s *Stores) AddAgent(devCA, agent string) {
	s.t.Helper()
	require.NoError(s.t, etcdauth.ProvisionWithDevCA(s.t.Context(), devCA, s.Etcd.Endpoints(), agent))
}

// KeysContaining returns all keys of Redis whose name or value contains the text.
func (s *Stores) KeysContaining(text string) (found []string) {
	s.t.Helper()
	client := s.uncompressedClient(s.t.Context())
	defer func() { require.NoError(s.t, client.Close()) }()
	for cursor := uint64(0); ; {
		keys, next, err := client.Scan(s.t.Context(), cursor, "*", 1000).Result()
		require.NoError(s.t, err)
		for _, key := range keys {
			if value, err := client.Dump(s.t.Context(), key).Result(); err == nil && strings.Contains(key+value, text) {
				found = append(found, key)
			}
		}
		if cursor = next; cursor == 0 {
			return found
		}
	}
}

// RewriteRedis makes Redis replace its append-only file with a snapshot of its current data (BGREWRITEAOF). It
// returns when Redis has finished.
func (s *Stores) RewriteRedis(ctx context.Context) {
	s.t.Helper()
	client := s.uncompressedClient(ctx)
	defer func() { require.NoError(s.t, client.Close()) }()
	require.NoError(s.t, client.BgRewriteAOF(ctx).Err())
	require.Eventually(s.t, func() bool {
		info := client.Info(ctx, "persistence").Val()
		return strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0")
	}, rewriteTimeout, 20*time.Millisecond, "Redis has rewritten its log")
}

// uncompressedClient returns an admin client of a Redis that compresses no values, so that texts can be found in
// them.
func (s *Stores) uncompressedClient(ctx context.Context) *redis.Client {
	s.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Redis.Addr, Username: redistest.Admin, Password: redistest.Admin})
	require.NoError(s.t, client.ConfigSet(ctx, "rdbcompression", "no").Err())
	return client
}

// ReadFiles returns the content of every file that the stores have written, keyed by store and path. It first
// makes Redis write all current keys to a file.
func (s *Stores) ReadFiles() map[string]string {
	s.t.Helper()
	client := s.uncompressedClient(s.t.Context())
	defer func() { require.NoError(s.t, client.Close()) }()
	require.NoError(s.t, client.Save(s.t.Context()).Err())
	found := map[string]string{}
	for name, folder := range map[string]string{"etcd": s.Etcd.DataDir(), "redis": s.Redis.Dir()} {
		require.NoError(s.t, ReadFolder(found, name, folder))
	}
	return found
}

// ReadFolder adds the content of all files below a folder to the map. The keys are the folder's name and the path
// of the file.
func ReadFolder(to map[string]string, name, folder string) error {
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		to[name+" "+strings.TrimPrefix(path, folder)] = string(content)
		return err
	})
}

// RevokeLease revokes the lease of an instance, as an operator can do with etcdctl.
func (s *Stores) RevokeLease(agent, id string) {
	s.t.Helper()
	client := s.rootClient()
	stored, err := client.Get(s.t.Context(), registrationKey(agent, id))
	require.NoError(s.t, err)
	require.Len(s.t, stored.Kvs, 1)
	_, err = client.Revoke(s.t.Context(), clientv3.LeaseID(stored.Kvs[0].Lease))
	require.NoError(s.t, err)
}

// IsRegistered reports whether etcd holds the registration of an instance.
func (s *Stores) IsRegistered(agent, id string) bool {
	s.t.Helper()
	stored, err := s.rootClient().Get(s.t.Context(), registrationKey(agent, id), clientv3.WithCountOnly())
	require.NoError(s.t, err)
	return stored.Count > 0
}

// registrationKey returns the key of an instance. See docs/write-a-worker-in-any-language.md.
func registrationKey(agent, id string) string { return "/troupe/v1/reg/" + agent + "/" + id }

// rootClient returns an etcd client with all rights. It is created once, because each client has a connection.
func (s *Stores) rootClient() *clientv3.Client {
	s.t.Helper()
	if s.root == nil {
		s.root = s.Etcd.Client()
	}
	return s.root
}
