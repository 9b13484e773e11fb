package app

import (
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Config is every setting of the memory service. The tags are the flags, the environment
// variables, the defaults and the help text at once.
type Config struct {
	GRPCAddr         string        `name:"grpc-addr" help:"Address to serve gRPC on." default:"127.0.0.1:7401" env:"TROUPE_GRPC_ADDR"`
	HTTPAddr         string        `name:"http-addr" help:"Address of the plain HTTP port: /livez /readyz /startupz /metrics." default:"127.0.0.1:7481" env:"TROUPE_HTTP_ADDR"`
	Redis            string        `help:"URL of the Redis that keeps sessions: redis://[user:password@]host:port/db; ?addr=host:port names more nodes of a Cluster. A password here is seen by ps: use --redis-password-file, or the variable." default:"redis://127.0.0.1:6379/0" env:"TROUPE_REDIS"`
	Durability       string        `help:"What an acknowledged write survives: D0 nothing is asked of Redis, D1 its crash, D2 the loss of its machine. While Redis is known to fall short of it the service is not ready and begins no turns." enum:"D0,D1,D2" default:"D1" env:"TROUPE_DURABILITY"`
	Etcd             []string      `help:"Addresses of etcd, https://host:port or host:port in plain text, which keeps the generation of the data: after a failover or a restore of Redis no epoch is used again. Empty: nobody looks after that." env:"TROUPE_ETCD"`
	SessionRetention time.Duration `help:"How long a session is kept after its last activity; then all of it is deleted. 0: for ever." default:"0" env:"TROUPE_SESSION_RETENTION"`
	CompactAbove     int           `help:"How many messages a session may hold after a turn before its oldest become a summary. 0: it is left as it is, and a warning tells when it is nearly full." default:"0" env:"TROUPE_COMPACT_ABOVE"`
	CompactKeep      int           `help:"How many of the latest messages that leaves. 0: half of --compact-above." default:"0" env:"TROUPE_COMPACT_KEEP"`
	KeepJournals     time.Duration `help:"How long the journal of a step is kept behind it, so that troupe replay can run it again: replies of models and results of tools, in Redis. 0: not at all." default:"0" env:"TROUPE_KEEP_JOURNALS"`
	Grace            time.Duration `help:"How long calls in flight may take to end when the service stops." default:"10s" env:"TROUPE_GRACE"`
	Rates            string        `help:"YAML file with how often workers of an agent may call, such as mesh: {rate: 10000, burst: 20000}, which is the default." env:"TROUPE_RATES" type:"path" default:"" placeholder:"FILE"`
	Reflection       bool          `help:"Serve gRPC reflection." env:"TROUPE_REFLECTION"`
	Fleeting         bool          `kong:"-"` // the data begin anew with each process, so that they have no generation

	Identity      identity.Config       `embed:""`
	RedisSecurity redisconn.Security    `embed:"" prefix:"redis-"`
	EtcdSecurity  etcdregistry.Security `embed:"" prefix:"etcd-"`
	Telemetry     telemetry.Config      `embed:""`
}

// Validate names the first setting that cannot be.
func (c *Config) Validate() error {
	if c.Grace < 0 {
		return fmt.Errorf("--grace: %s is below zero", c.Grace)
	}
	if c.SessionRetention < 0 || c.SessionRetention > 0 && c.SessionRetention < minRetention {
		return fmt.Errorf("--session-retention: %s is too short; name at least %s, or 0 to keep sessions for ever", c.SessionRetention, minRetention)
	}
	if c.CompactAbove < 0 || c.CompactAbove >= session.MaxMessages {
		return fmt.Errorf("--compact-above: %d is not between 0 and %d, which a session may hold", c.CompactAbove, session.MaxMessages)
	}
	if c.CompactKeep < 0 || c.CompactKeep > c.CompactAbove {
		return fmt.Errorf("--compact-keep: %d is not between 0 and --compact-above, %d", c.CompactKeep, c.CompactAbove)
	}
	if c.KeepJournals < 0 || c.KeepJournals > memory.Retention {
		return fmt.Errorf("--keep-journals: %s is not between 0 and %s, for which a turn is known", c.KeepJournals, memory.Retention)
	}
	return nil
}

// minRetention exceeds the time that a turn may take, and its retries.
const minRetention = time.Hour
