package app

import (
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/services/orchestrator/app/internal/clientport"
	"github.com/troupe-dev/troupe/services/orchestrator/app/internal/discovery"
	"github.com/troupe-dev/troupe/services/orchestrator/app/internal/stores"
)

// Config has all settings of the orchestrator, grouped by component. The tags define flags, environment variables,
// defaults and help texts.
type Config struct {
	HTTPAddr   string        `name:"http-addr" help:"Address of probes and metrics, plain HTTP." default:"127.0.0.1:7480" env:"TROUPE_HTTP_ADDR"`
	Agents     string        `help:"Folder of workflow YAML files." default:"agents/research-assistant" env:"TROUPE_AGENTS" type:"path"`
	Workflow   string        `help:"Workflow for calls that name no target (empty means the first by name)." env:"TROUPE_WORKFLOW" placeholder:"NAME"`
	InstanceID string        `help:"Name of this replica in trace records (empty means a random one)." env:"TROUPE_INSTANCE_ID" placeholder:"ID"`
	Timeout    time.Duration `help:"Timeout of turns that set none, 1s to 10m." default:"2m" env:"TROUPE_TIMEOUT"`
	Drain      time.Duration `help:"How long running turns may take to end when the orchestrator stops." default:"30s" env:"TROUPE_DRAIN"`

	Port      PortConfig       `embed:""`
	Stores    StoresConfig     `embed:""`
	Discovery DiscoveryConfig  `embed:""`
	Admission AdmissionConfig  `embed:""`
	Identity  identity.Config  `embed:""`
	Telemetry telemetry.Config `embed:""`
}

// Settings of the components, exported for programs that start an orchestrator without flags.
type (
	// PortConfig configures the port for clients.
	PortConfig = clientport.Config
	// StoresConfig says where the stores of traces and sessions are, and how long traces are kept.
	StoresConfig = stores.Config
	// DiscoveryConfig configures how the orchestrator finds instances of agents.
	DiscoveryConfig = discovery.Config
)

// AdmissionConfig limits how many turns run and wait at once.
type AdmissionConfig struct {
	MaxTurns       int           `help:"Turns that may run at once (0 means the capacity of the known instances)." default:"0" env:"TROUPE_MAX_TURNS"`
	MaxTenantTurns int           `help:"Turns per tenant (0 means all of them, or half while other tenants compete)." default:"0" env:"TROUPE_MAX_TENANT_TURNS"`
	MaxQueue       int           `help:"Callers that may wait for a turn to begin (0 means as many as turns may run)." default:"0" env:"TROUPE_MAX_QUEUE"`
	MaxQueueTime   time.Duration `help:"How long a caller may wait for its turn to begin (0s means no waiting)." default:"5s" env:"TROUPE_MAX_QUEUE_TIME"`
}

// Check returns an error that names the first invalid setting.
func (c *AdmissionConfig) Check() error {
	if least := min(c.MaxTurns, c.MaxTenantTurns, c.MaxQueue); least < 0 {
		return fmt.Errorf("--max-turns, --max-tenant-turns and --max-queue: %d is below zero; 0 is the default", least)
	}
	if c.MaxQueueTime < 0 {
		return fmt.Errorf("--max-queue-time: %s is below zero", c.MaxQueueTime)
	}
	return nil
}

// Limits of the timeout of a turn. The .proto file repeats them.
const (
	minTimeout = time.Second
	maxTimeout = 10 * time.Minute
)

// Validate returns an error that names the first invalid setting.
func (c *Config) Validate() error {
	if c.Timeout < minTimeout || c.Timeout > maxTimeout {
		return fmt.Errorf("--timeout: %s is not between %s and %s", c.Timeout, minTimeout, maxTimeout)
	}
	if c.Drain < 0 {
		return fmt.Errorf("--drain: %s is below zero", c.Drain)
	}
	if c.InstanceID != "" {
		if err := registry.CheckID(c.InstanceID); err != nil {
			return fmt.Errorf("--instance-id: %w", err)
		}
	}
	for _, part := range []interface{ Check() error }{&c.Discovery, &c.Stores, &c.Admission, &c.Port} {
		if err := part.Check(); err != nil {
			return err
		}
	}
	return nil
}
