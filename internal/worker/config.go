package worker

import (
	"fmt"
	"net"
	"time"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
)

// Config is every setting of a worker that is not the agent's. The tags are the flags, the
// environment variables, the defaults and the help text at once.
type Config struct {
	GRPCAddr      string        `name:"grpc-addr" help:"Address to serve gRPC on." default:"127.0.0.1:7402" env:"TROUPE_GRPC_ADDR"`
	HTTPAddr      string        `name:"http-addr" help:"Address of probes and metrics, plain HTTP." default:"127.0.0.1:7482" env:"TROUPE_HTTP_ADDR"`
	AdvertiseAddr string        `help:"Address that the orchestrator dials (empty means --grpc-addr)." env:"TROUPE_ADVERTISE_ADDR" placeholder:"HOST:PORT"`
	InstanceID    string        `help:"Id of this instance, unique for the agent (empty means a random one)." env:"TROUPE_INSTANCE_ID" placeholder:"ID"`
	Etcd          []string      `help:"Addresses of etcd: https://host:port, or host:port for one in plain text." default:"127.0.0.1:2379" env:"TROUPE_ETCD"`
	Memory        string        `help:"Address of the memory service." default:"127.0.0.1:7401" env:"TROUPE_MEMORY"`
	Drain         time.Duration `help:"How long running steps may take to end when the worker stops." default:"30s" env:"TROUPE_DRAIN"`
	Conformance   bool          `help:"Serve the conformance kit instead of the agent: see troupe conformance." env:"TROUPE_CONFORMANCE"`
	Capabilities  []string      `help:"Capabilities of this instance, such as gpu, separated by commas." env:"TROUPE_CAPABILITIES" placeholder:"NAME"`
	Reflection    bool          `help:"Serve gRPC reflection." env:"TROUPE_REFLECTION"`

	Identity     identity.Config       `embed:""`
	EtcdSecurity etcdregistry.Security `embed:"" prefix:"etcd-"`
	Telemetry    telemetry.Config      `embed:""`

	// registrationTTL is how long the registration outlives the worker (0 means etcdregistry.DefaultTTL); tests
	// shorten it.
	registrationTTL time.Duration
}

// Validate returns an error for the first invalid setting.
func (c *Config) Validate() error {
	if c.Drain < 0 {
		return fmt.Errorf("--drain: %s is below zero", c.Drain)
	}
	if _, err := registry.Capabilities(c.Capabilities); err != nil {
		return fmt.Errorf("--capabilities: %w", err)
	}
	if len(c.Etcd) == 0 {
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
	if c.AdvertiseAddr == "" {
		return nil
	}
	host, _, _ := net.SplitHostPort(c.AdvertiseAddr) // no host is no address
	if !registry.IsAddress(c.AdvertiseAddr) || net.ParseIP(host).IsUnspecified() {
		return fmt.Errorf("--advertise-addr: %q is not host:port of this worker alone", c.AdvertiseAddr)
	}
	return nil
}

// advertised returns an error if the port cannot be registered at its own address: an address of all interfaces
// would lead the orchestrator to itself. The error names the way out.
func (c *Config) advertised(flag string, at net.Addr) error {
	if tcp, ok := at.(*net.TCPAddr); c.AdvertiseAddr != "" || !ok || !tcp.IP.IsUnspecified() {
		return nil
	}
	return fmt.Errorf("%s: %s is the address of all interfaces and cannot be dialed;  "+
		"give --advertise-addr, the host:port under which the orchestrator reaches this worker, or serve on that alone", flag, at)
}
