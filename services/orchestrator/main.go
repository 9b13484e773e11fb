// Command orchestrator takes what users say, decides which agent works next, and streams what happens.
// `troupe serve orchestrator` is the same program.
package main

import (
	"context"
	"os"

	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/services/orchestrator/app"
)

func main() {
	var cfg app.Config
	os.Exit(process.Main("orchestrator", "Takes what users say, decides which agent works next, and streams what happens.", &cfg, &cfg.Telemetry,
		func(ctx context.Context, t *telemetry.Telemetry) error { return app.Serve(ctx, t, cfg) }))
}
