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

// Config has all settings of the memory service. Its tags define the flags, environment variables, defaults and
// help texts.
type Config struct {
	GRPCAddr string `name:"grpc-addr" help:"Address to serve gRPC on." default:"127.0.0.1:7401" env:"TROUPE_GRPC_ADDR"`
	HTTPAddr string `name:"http-addr" help:"Address of the plain HTTP port: /livez /readyz /startupz /metrics." default:"127.0.0.1:7481" env:"TROUPE_HTTP_ADDR"`

	// The list of processes shows a password in the URL, but not a password from RedisSecurity.PasswordFile.
	Redis string `help:"URL of the Redis for sessions: redis://[user:password@]host:port/db." default:"redis://127.0.0.1:6379/0" env:"TROUPE_REDIS"`
	// While Redis is less durable than this class, the service is not ready and begins no turns.
	Durability string `help:"What a write survives: D0 nothing, D1 a crash of Redis, D2 loss of its machine." enum:"D0,D1,D2" default:"D1" env:"TROUPE_DURABILITY"`
	// Ephemeral means that each process starts with empty data, so that no generation is needed.
	Ephemeral bool `kong:"-"`
	// Without etcd, an epoch may be assigned twice after a failover or a restore of Redis.
	Etcd []string `help:"Addresses of etcd, which keeps the generation of the data (empty means none)." env:"TROUPE_ETCD"`

	Sessions   SessionConfig `embed:""`
	Grace      time.Duration `help:"How long calls in flight may take to end when the service stops." default:"10s" env:"TROUPE_GRACE"`
	Rates      string        `help:"YAML file with the rates at which workers may call." env:"TROUPE_RATES" type:"path" default:"" placeholder:"FILE"`
	Reflection bool          `help:"Serve gRPC reflection." env:"TROUPE_REFLECTION"`

	Identity      identity.Config       `embed:""`
	RedisSecurity redisconn.Security    `embed:"" prefix:"redis-"`
	EtcdSecurity  etcdregistry.Security `embed:"" prefix:"etcd-"`
	Telemetry     telemetry.Config      `embed:""`
}

// SessionConfig sets how long sessions are kept and when they are compacted.
type SessionConfig struct {
	SessionRetention time.Duration `help:"How long an unused session is kept before it is deleted (0 means for ever)." default:"0" env:"TROUPE_SESSION_RETENTION"`
	CompactAbove     int           `help:"Messages of a session above which its oldest become a summary (0 means never)." default:"0" env:"TROUPE_COMPACT_ABOVE"`
	CompactKeep      int           `help:"Latest messages that a compaction leaves (0 means half of --compact-above)." default:"0" env:"TROUPE_COMPACT_KEEP"`
	KeepJournals     time.Duration `help:"How long the journal of a finished step is kept for replay (0 means not at all)." default:"0" env:"TROUPE_KEEP_JOURNALS"`
}

// Validate returns an error that names the first invalid setting.
func (c *Config) Validate() error {
	if c.Grace < 0 {
		return fmt.Errorf("--grace: %s is below zero", c.Grace)
	}
	return c.Sessions.validate()
}

func (c SessionConfig) validate() error {
	if c.SessionRetention < 0 || c.SessionRetention > 0 && c.SessionRetention < minRetention {
		return fmt.Errorf("--session-retention: %s is too short; give at least %s, or 0 to keep sessions for ever", c.SessionRetention, minRetention)
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

// minRetention is the shortest session retention that may be configured. It is longer than a turn with all its
// retries.
const minRetention = time.Hour
