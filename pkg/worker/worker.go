// Package worker serves one agent to the mesh. It answers steps over gRPC, registers the agent in
// etcd under a lease, shows probes and metrics, and drains when it stops.
//
// An author's own program makes an agent and calls Main:
//
//	func main() { os.Exit(worker.Main(agent.New(agent.Config{…}))) }
//
// A worker owns its RAM and nothing else. Conversations are in the memory service, so killing a
// worker costs at most the step that it runs.
package worker

import (
	"context"
	"fmt"
	"os"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/worker"
	"github.com/troupe-dev/troupe/internal/worker/conformancehost"
	"github.com/troupe-dev/troupe/pkg/agent"
)

// Config holds every setting of a worker except the settings of its agent. Main reads it from flags and
// environment variables, which also have defaults. A program that calls Run must set the addresses.
type Config = worker.Config

// The parts of a Config.
type (
	// Identity holds the key and the certificate that prove the worker's identity, and the CA that it trusts.
	Identity = identity.Config
	// EtcdSecurity holds the settings of the connection to etcd: CA, certificate and user.
	EtcdSecurity = etcdregistry.Security
	// Telemetry decides where logs, metrics and traces are sent.
	Telemetry = telemetry.Config
)

// Main serves the agent as a program until SIGINT, SIGTERM or SIGHUP. Its settings are the flags and environment
// variables of Config. Its parameters are the results of agent.New. It returns the exit code: 0 after an orderly
// stop, 1 after an error, and 2 if the agent or a flag is invalid.
func Main(a *agent.Agent, err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return process.ExitUsage
	}
	var cfg Config
	description := fmt.Sprintf("Serves the agent %q to the mesh. %s", a.Name(), a.Description())
	return process.Main("worker", description, &cfg, &cfg.Telemetry, func(ctx context.Context, t *telemetry.Telemetry) error {
		return serve(ctx, t, cfg, a, func() { t.Log.Info("ready") })
	})
}

// Run serves the agent until ctx ends, or until the instance is shut down over RPC. It calls ready once the
// instance is READY and registered. It returns an error if the start fails or the registration is rejected.
func Run(ctx context.Context, cfg Config, a *agent.Agent, ready func()) error {
	t, err := telemetry.New(ctx, "worker", cfg.Telemetry)
	if err != nil {
		return err
	}
	defer t.Close()
	return serve(ctx, t, cfg, a, ready)
}

func serve(ctx context.Context, t *telemetry.Telemetry, cfg Config, a *agent.Agent, ready func()) error {
	if cfg.Conformance {
		return conformancehost.Serve(ctx, t, cfg)
	}
	w, err := worker.New(t, cfg, a)
	if err != nil {
		return err
	}
	return w.Run(ctx, ready)
}
