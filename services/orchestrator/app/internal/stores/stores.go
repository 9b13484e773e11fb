// Package stores opens the stores that hold the state of the orchestrator: the memory service and the Redis with
// the traces.
package stores

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/memoryrpc"
	"github.com/troupe-dev/troupe/internal/probe"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace/inmem"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace/redistrace"
)

// Config says where the stores of traces and sessions are, how to connect to Redis, and how long traces are kept. The
// tags define flags of the orchestrator.
type Config struct {
	Memory         string        `help:"Address of the memory service." default:"127.0.0.1:7401" env:"TROUPE_MEMORY"`
	Redis          string        `help:"URL of the Redis for traces (see also --redis-password-file)." default:"redis://127.0.0.1:6379/0" env:"TROUPE_REDIS"`
	TraceRetention time.Duration `help:"How long traces are kept after their end." default:"24h" env:"TROUPE_TRACE_RETENTION"`

	RedisSecurity redisconn.Security `embed:"" prefix:"redis-"`
}

// Check returns an error that names the first invalid setting.
func (c *Config) Check() error {
	if c.TraceRetention < time.Minute {
		return fmt.Errorf("--trace-retention: %s is below a minute; clients resume from stored traces", c.TraceRetention)
	}
	if err := rpc.CheckTarget(c.Memory); err != nil {
		return fmt.Errorf("--memory: %w", err)
	}
	return nil
}

// Names of the readiness conditions that depend on the stores.
const (
	ConditionMemory = "memory"
	ConditionTraces = "trace store"
)

// Stores holds the stores of an orchestrator. They connect on first use.
type Stores struct {
	Memory *memoryrpc.Store
	Traces trace.Store
	// Dependencies are the readiness checks of the stores.
	Dependencies []probe.Dependency

	closers process.Closers
}

// Environment replaces what the stores use outside of their process. The zero value is TCP and Redis.
type Environment struct {
	Network rpc.Network
	Traces  trace.Store // nil means Redis
}

// TracesInRAM keeps traces in RAM.
type TracesInRAM = inmem.Store

// NewTracesInRAM returns an empty store. clock is the time of the store (nil means time.Now).
func NewTracesInRAM(clock func() time.Time) *TracesInRAM { return inmem.New(clock) }

// Open returns the stores. The caller closes them.
func Open(cfg Config, env Environment, self *identity.Source, t *telemetry.Telemetry) (*Stores, error) {
	s := &Stores{Traces: env.Traces}
	traces := probe.Dependency{Condition: ConditionTraces, Address: "memory", Check: func(context.Context) error { return nil }}
	if s.Traces == nil {
		redis, err := redistrace.New(redisconn.Config{URL: cfg.Redis, Security: cfg.RedisSecurity}, cfg.TraceRetention)
		if err != nil {
			return nil, err // the error names the flag
		}
		s.closers.Add(redis)
		s.Traces, traces.Address, traces.Check = redis, redis.Addr(), redis.Ping
	}
	service := troupev1.MemoryService_ServiceDesc.ServiceName
	conn, err := env.Network.DialWith(self.ClientCredentials(identity.Memory, ""), cfg.Memory, t, service)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--memory: %w", err), s.Close())
	}
	s.closers.Add(conn)
	s.Memory = memoryrpc.New(conn)
	s.Dependencies = []probe.Dependency{
		{Condition: ConditionMemory, Address: cfg.Memory, Check: rpc.CheckServing(conn, service)},
		traces,
	}
	return s, nil
}

// Close closes the connections.
func (s *Stores) Close() error { return s.closers.Close() }
