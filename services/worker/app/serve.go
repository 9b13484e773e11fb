package app

import (
	"context"

	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/worker/conformancehost"
)

// Serve runs the worker until ctx ends. It is what its program does with cfg.
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
