// Command memory runs the memory service, which keeps the conversations of the mesh. It is the only writer of
// sessions and turns in Redis. Each write is atomic and fenced. `troupe serve memory` runs the same program.
package main

import (
	"context"
	"os"

	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/services/memory/app"
)

func main() {
	var cfg app.Config
	os.Exit(process.Main("memory", "Keeps the conversations of the mesh in Redis.", &cfg, &cfg.Telemetry,
		func(ctx context.Context, t *telemetry.Telemetry) error { return app.Serve(ctx, t, cfg) }))
}
