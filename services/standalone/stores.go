package standalone

import "github.com/troupe-dev/troupe/services/standalone/store"

// The embedded stores are a package of their own, so that a test that needs an etcd does
// not need a mesh.
type (
	EtcdConfig  = store.EtcdConfig
	RedisConfig = store.RedisConfig
)

var (
	NewEtcd  = store.NewEtcd
	NewRedis = store.NewRedis
)
