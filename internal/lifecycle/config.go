package lifecycle

import (
	"cmp"
	"context"
	"time"
)

// Defaults of Config (LC-24 and guarantees 2.11).
const (
	DefaultCapacity       = 16
	DefaultStartupTimeout = 30 * time.Second
	DefaultMaxRetries     = 3
	DefaultDrain          = 30 * time.Second
)

// Config configures an instance and never changes. Each hook may be nil. A hook that panics has failed.
// A hook that does not return soon after its context ended is abandoned.
type Config struct {
	Capacity       int           // steps at once (0 means DefaultCapacity)
	StartupTimeout time.Duration // bounds Startup with all its tries (0 means DefaultStartupTimeout)
	RetryOnFailure bool          // try a failed start again, up to MaxRetries times (LC-13)
	MaxRetries     int           // (0 means DefaultMaxRetries)
	// KeepFailed leaves an instance whose start failed in INITIALIZING, with the resources that it took,
	// until Shutdown (cleanup_on_error = false, LC-11: so that an operator can look at it).
	KeepFailed bool
	Drain      time.Duration // of a shutdown after a fatal step (0 means DefaultDrain)

	// Start takes the resources of the instance. When it fails, Stop runs, so Stop must cope with a
	// Start that ended half way.
	Start func(ctx context.Context) error
	// Leave removes the instance from the registry. It runs first in a shutdown, before steps drain, so that no
	// new step is routed to the instance.
	Leave func(ctx context.Context) error
	// Stop frees what Start took: after each failed start, and last in a shutdown, when no step runs any
	// more. Its context ends with the deadline of the shutdown.
	Stop func(ctx context.Context) error
	// Log is called with each error of a start or a shutdown, and with the phase that it happened in:
	// start, leave, drain or stop (LC-17: no error is lost when the caller has gone). It may be called
	// from any goroutine.
	Log func(phase string, err error)
}

func (c Config) withDefaults() Config {
	c.Capacity = cmp.Or(max(0, c.Capacity), DefaultCapacity)
	c.StartupTimeout = cmp.Or(max(0, c.StartupTimeout), DefaultStartupTimeout)
	c.MaxRetries = cmp.Or(max(0, c.MaxRetries), DefaultMaxRetries)
	c.Drain = cmp.Or(max(0, c.Drain), DefaultDrain)
	if c.Log == nil {
		c.Log = func(string, error) {}
	}
	return c
}
