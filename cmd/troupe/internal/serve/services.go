package serve

import (
	"context"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/telemetry"
	memory "github.com/troupe-dev/troupe/services/memory/app"
	orchestrator "github.com/troupe-dev/troupe/services/orchestrator/app"
	worker "github.com/troupe-dev/troupe/services/worker/app"
)

// serviceCommands has one command for each kind of process in a distributed mesh, such as one in a cluster.
type serviceCommands struct {
	Orchestrator orchestratorCommand `cmd:"" help:"Takes what users say, decides which agent works next, and streams what happens."`
	Memory       memoryCommand       `cmd:"" help:"Keeps the conversations of the mesh in Redis."`
	Worker       workerCommand       `cmd:"" help:"Runs one agent that is declared in YAML."`
}

type orchestratorCommand struct {
	orchestrator.Config `embed:""`
}

// Run serves until the process receives a signal.
func (s *orchestratorCommand) Run(ctx context.Context, term console.Terminal) error {
	return runService(ctx, term, "orchestrator", s.Telemetry, func(ctx context.Context, t *telemetry.Telemetry) error {
		return orchestrator.Serve(ctx, t, s.Config)
	})
}

type memoryCommand struct {
	memory.Config `embed:""`
}

// Run serves until the process receives a signal.
func (s *memoryCommand) Run(ctx context.Context, term console.Terminal) error {
	return runService(ctx, term, "memory", s.Telemetry, func(ctx context.Context, t *telemetry.Telemetry) error {
		return memory.Serve(ctx, t, s.Config)
	})
}

type workerCommand struct {
	worker.Config `embed:""`
}

// Run serves until the process receives a signal.
func (s *workerCommand) Run(ctx context.Context, term console.Terminal) error {
	return runService(ctx, term, "worker", s.Worker.Telemetry, func(ctx context.Context, t *telemetry.Telemetry) error {
		return worker.Serve(ctx, t, s.Config)
	})
}

// runService runs a service with the flags, errors and exit codes of its own program.
func runService(ctx context.Context, term console.Terminal, name string, tel telemetry.Config, service func(context.Context,
	*telemetry.Telemetry) error,
) error {
	if code := process.Serve(ctx, name, tel, term.Err, service); code != process.ExitOK {
		return console.ExitCode(code)
	}
	return nil
}
