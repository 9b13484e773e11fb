package app

import (
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/bearer"
	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
)

// Config is every setting of the orchestrator. The tags are the flags, the environment
// variables, the defaults and the help text at once.
type Config struct {
	GRPCAddr       string        `name:"grpc-addr" help:"Address to serve gRPC on." default:"127.0.0.1:7400" env:"TROUPE_GRPC_ADDR"`
	HTTPAddr       string        `name:"http-addr" help:"Address of the plain HTTP port: /livez /readyz /startupz /metrics." default:"127.0.0.1:7480" env:"TROUPE_HTTP_ADDR"`
	Agents         string        `help:"Folder with the YAML files that declare workflows." default:"agents/research-assistant" env:"TROUPE_AGENTS" type:"path"`
	Workflow       string        `help:"Workflow for calls that name no target. Empty: the only one, or the first by name." env:"TROUPE_WORKFLOW" placeholder:"NAME"`
	Etcd           []string      `help:"Addresses of etcd: https://host:port, or host:port for one in plain text." default:"127.0.0.1:2379" env:"TROUPE_ETCD"`
	Memory         string        `help:"Address of the memory service." default:"127.0.0.1:7401" env:"TROUPE_MEMORY"`
	Redis          string        `help:"URL of the Redis that keeps traces, as of the memory service. A password here is seen by ps: use --redis-password-file, or the variable." default:"redis://127.0.0.1:6379/0" env:"TROUPE_REDIS"`
	InstanceID     string        `help:"Name of this replica in trace records. Empty: one is made." env:"TROUPE_INSTANCE_ID" placeholder:"ID"`
	Timeout        time.Duration `help:"Time that a turn may take when its caller and its workflow name none, 1s to 10m." default:"2m" env:"TROUPE_TIMEOUT"`
	RouteWait      time.Duration `help:"How long a step waits for an instance that takes it, while none of its agent works for this orchestrator." default:"5s" env:"TROUPE_ROUTE_WAIT"`
	TraceRetention time.Duration `help:"How long traces are kept after their end." default:"24h" env:"TROUPE_TRACE_RETENTION"`
	Snapshot       string        `help:"File for the last known instances, so that a start without etcd can serve. Empty: none." env:"TROUPE_SNAPSHOT" type:"path" default:"" placeholder:"FILE"`
	Drain          time.Duration `help:"How long running turns may take to end when the orchestrator stops." default:"30s" env:"TROUPE_DRAIN"`
	Reflection     bool          `help:"Serve gRPC reflection." env:"TROUPE_REFLECTION"`

	MaxTurns       int           `help:"How many turns may run at once here. 0: as many as the steps that the known instances take at once." default:"0" env:"TROUPE_MAX_TURNS"`
	MaxTenantTurns int           `help:"How many of them one tenant may have. 0: all while it is alone, half of them as soon as another has or wants one." default:"0" env:"TROUPE_MAX_TENANT_TURNS"`
	MaxQueue       int           `help:"How many callers may wait for a turn to begin. 0: as many as turns may run at once." default:"0" env:"TROUPE_MAX_QUEUE"`
	MaxQueueTime   time.Duration `help:"How long a caller may wait for its turn to begin. 0s: nobody waits." default:"5s" env:"TROUPE_MAX_QUEUE_TIME"`

	Rates           string `help:"YAML file with how often a caller may call, by class of call. Empty: the defaults." env:"TROUPE_RATES" type:"path" default:"" placeholder:"FILE"`
	PeerConnections int    `help:"How many connections one IP address may have, or one /64 of IPv6. 0: any number, for a proxy in front of all clients." default:"32" env:"TROUPE_PEER_CONNECTIONS"`

	Identity      identity.Config       `embed:""`
	ClientTLS     identity.Edge         `embed:""`
	Clients       bearer.Config         `embed:""`
	RedisSecurity redisconn.Security    `embed:"" prefix:"redis-"`
	EtcdSecurity  etcdregistry.Security `embed:"" prefix:"etcd-"`
	Telemetry     telemetry.Config      `embed:""`
}

// Limits of a turn's timeout; the same as in the .proto.
const (
	minTimeout = time.Second
	maxTimeout = 10 * time.Minute
)

// Validate names the first setting that cannot be.
func (c *Config) Validate() error {
	switch {
	case c.Timeout < minTimeout || c.Timeout > maxTimeout:
		return fmt.Errorf("--timeout: %s is not between %s and %s", c.Timeout, minTimeout, maxTimeout)
	case c.RouteWait < 0:
		return fmt.Errorf("--route-wait: %s is below zero", c.RouteWait)
	case min(c.MaxTurns, c.MaxTenantTurns, c.MaxQueue) < 0:
		return fmt.Errorf("--max-turns, --max-tenant-turns and --max-queue: %d is below zero; 0 is the default", min(c.MaxTurns, c.MaxTenantTurns, c.MaxQueue))
	case c.MaxQueueTime < 0:
		return fmt.Errorf("--max-queue-time: %s is below zero", c.MaxQueueTime)
	case c.PeerConnections < 0:
		return fmt.Errorf("--peer-connections: %d is below zero; 0 is any number", c.PeerConnections)
	case c.TraceRetention < time.Minute:
		return fmt.Errorf("--trace-retention: %s is below a minute; clients resume from stored traces", c.TraceRetention)
	case c.Drain < 0:
		return fmt.Errorf("--drain: %s is below zero", c.Drain)
	case len(c.Etcd) == 0:
		return fmt.Errorf("--etcd: at least one address is needed")
	}
	if err := rpc.CheckTarget(c.Memory); err != nil {
		return fmt.Errorf("--memory: %w", err)
	}
	if c.InstanceID != "" {
		if err := registry.CheckID(c.InstanceID); err != nil {
			return fmt.Errorf("--instance-id: %w", err)
		}
	}
	return c.Clients.Check()
}
