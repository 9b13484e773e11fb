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

// Config holds the settings of a worker, except those that belong to the agent. The tags define the flags, the
// environment variables, the defaults and the help text.
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

	// registrationTTL is how long the registration outlives the worker (0 means etcdregistry.DefaultTTL). Only
	// tests change it.
	registrationTTL time.Duration
}

// Validate returns an error for the first invalid setting.
func (c *Config) Validate() error {
	if c.Drain < 0 {
		return fmt.Errorf("--drain: %s is below zero", c.Drain)
	}
	if _, err := registry.MergeCapabilities(c.Capabilities); err != nil {
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
	host, _, _ := net.SplitHostPort(c.AdvertiseAddr) // without a host it is no valid address
	if !registry.IsAddress(c.AdvertiseAddr) || net.ParseIP(host).IsUnspecified() {
		return fmt.Errorf("--advertise-addr: %q is not the host:port of a single worker", c.AdvertiseAddr)
	}
	return nil
}

// checkAdvertised returns an error if no address for the registration is known. A listener on all interfaces has
// no address that the orchestrator could dial. The error says which flag to set.
func (c *Config) checkAdvertised(flag string, at net.Addr) error {
	if tcp, ok := at.(*net.TCPAddr); c.AdvertiseAddr != "" || !ok || !tcp.IP.IsUnspecified() {
		return nil
	}
	return fmt.Errorf("%s: %s is the address of all interfaces and cannot be dialed; "+
		"give --advertise-addr, the host:port at which the orchestrator reaches this worker, or listen only on that address", flag, at)
}
