package app

import (
	"context"

	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/worker/conformancehost"
)

// Serve creates a worker with cfg and runs it until ctx ends.
func Serve(ctx context.Context, t *telemetry.Telemetry, cfg Config) error {
	if cfg.Worker.Conformance {
		return conformancehost.Serve(ctx, t, cfg.Worker)
	}
	w, err := New(ctx, t, cfg, nil)
	if err != nil {
		return err
	}
	return w.Run(ctx, func() { t.Log.Info("ready") })
}
