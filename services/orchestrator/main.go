// Command orchestrator is the front door of the mesh: it takes what users say, decides who
// works, and streams what happens.
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
	os.Exit(process.Main("orchestrator", "The front door of the mesh: takes what users say, decides who works, streams what happens.",
		&cfg, &cfg.Telemetry, func(ctx context.Context, t *telemetry.Telemetry) error {
			a, err := app.New(t, cfg, nil)
			if err != nil {
				return err
			}
			return a.Run(ctx, func() { t.Log.Info("ready") })
		}))
}
