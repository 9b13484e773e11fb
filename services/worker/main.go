// Command worker runs one agent that is declared in YAML.
package main

import (
	"context"
	"os"

	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/worker"
	"github.com/troupe-dev/troupe/services/worker/app"
)

func main() {
	var cfg app.Config
	os.Exit(process.Main("worker", "Runs one agent that is declared in YAML.", &cfg, &cfg.Worker.Telemetry,
		func(ctx context.Context, t *telemetry.Telemetry) error {
			if cfg.Worker.Conformance {
				return worker.ServeConformance(ctx, t, cfg.Worker)
			}
			w, err := app.New(ctx, t, cfg, nil)
			if err != nil {
				return err
			}
			return w.Run(ctx, func() { t.Log.Info("ready") })
		}))
}
