// Command worker runs one agent that is declared in YAML. It is the same program as `troupe serve worker`.
package main

import (
	"context"
	"os"

	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/services/worker/app"
)

func main() {
	var cfg app.Config
	os.Exit(process.Main("worker", "Runs one agent that is declared in YAML.", &cfg, &cfg.Worker.Telemetry,
		func(ctx context.Context, t *telemetry.Telemetry) error { return app.Serve(ctx, t, cfg) }))
}
