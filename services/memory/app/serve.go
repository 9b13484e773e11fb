package app

import (
	"context"

	"github.com/troupe-dev/troupe/internal/telemetry"
)

// Serve runs the memory service with cfg until ctx ends.
func Serve(ctx context.Context, t *telemetry.Telemetry, cfg Config) error {
	a, err := New(t, cfg)
	if err != nil {
		return err
	}
	return a.Run(ctx, func() { t.Log.Info("ready") })
}
