// Command memory keeps the conversations of the mesh: it alone writes sessions and turns,
// into Redis, each write atomic and fenced.
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
	os.Exit(process.Main("memory", "Keeps the conversations of the mesh in Redis.",
		&cfg, &cfg.Telemetry, func(ctx context.Context, t *telemetry.Telemetry) error {
			a, err := app.New(t, cfg)
			if err != nil {
				return err
			}
			return a.Run(ctx, func() { t.Log.Info("ready") })
		}))
}
