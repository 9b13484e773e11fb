package app

import (
	"context"

	"github.com/troupe-dev/troupe/internal/telemetry"
)

// Serve creates an orchestrator with cfg and runs it until ctx ends.
func Serve(ctx context.Context, t *telemetry.Telemetry, cfg Config) error {
	a, err := New(t, cfg, nil)
	if err != nil {
		return err
	}
	return a.Run(ctx, func() { t.Log.Info("ready") })
}
