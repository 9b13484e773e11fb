package lifecycle

import (
	"cmp"
	"context"
	"time"
)

// These are the defaults of Config (LC-24 and guarantees 2.11).
const (
	DefaultCapacity       = 16
	DefaultStartupTimeout = 30 * time.Second
	DefaultMaxRetries     = 3
	DefaultDrainTimeout   = 30 * time.Second
)

// Config configures an instance. Each hook may be nil. A hook that panics counts as failed. A hook is abandoned if
// it does not return soon after its context has ended.
type Config struct {
	Capacity       int           // maximum of concurrent steps (0 means DefaultCapacity)
	StartupTimeout time.Duration // bounds Startup with all its tries (0 means DefaultStartupTimeout)
	RetryOnFailure bool          // retry a failed start up to MaxRetries times (LC-13)
	MaxRetries     int           // retries of a failed start (0 means DefaultMaxRetries)
	// KeepFailed keeps an instance whose start failed in INITIALIZING until Shutdown, with the resources that it
	// acquired (LC-11, cleanup_on_error = false: so that an operator can inspect it).
	KeepFailed   bool
	DropState    bool          // the shutdown does not persist the state of the agent (LC-24)
	DrainTimeout time.Duration // drain of the shutdown after a fatal step (0 means DefaultDrainTimeout)

	// Start acquires the resources of the instance. Stop runs after a failed Start, so Stop must handle a Start
	// that was only partly done.
	Start func(ctx context.Context) error
	// Leave removes the instance from the registry. It runs first in a shutdown, before steps drain, so that no
	// new step is routed to the instance.
	Leave func(ctx context.Context) error
	// Stop frees the resources that Start acquired. It runs after each failed start, and at the end of a shutdown,
	// when no step is running. Its context ends at the deadline of the shutdown.
	Stop func(ctx context.Context) error
	// LogError is called with each error of a start or a shutdown, and with its phase: start, leave, drain or stop
	// (LC-17: no error is lost if the caller has disconnected). It may be called from any goroutine.
	LogError func(phase string, err error)
}

func (c Config) withDefaults() Config {
	c.Capacity = cmp.Or(max(0, c.Capacity), DefaultCapacity)
	c.StartupTimeout = cmp.Or(max(0, c.StartupTimeout), DefaultStartupTimeout)
	c.MaxRetries = cmp.Or(max(0, c.MaxRetries), DefaultMaxRetries)
	c.DrainTimeout = cmp.Or(max(0, c.DrainTimeout), DefaultDrainTimeout)
	if c.LogError == nil {
		c.LogError = func(string, error) {}
	}
	return c
}

// startConfig is how an instance starts.
type startConfig struct {
	timeout    time.Duration
	retries    int
	keepFailed bool
	dropState  bool
}

// startConfig returns how an instance with this configuration starts with settings.
func (c Config) startConfig(settings Settings) startConfig {
	s := startConfig{timeout: cmp.Or(settings.Timeout, c.StartupTimeout), keepFailed: c.KeepFailed, dropState: c.DropState}
	if c.RetryOnFailure {
		s.retries = c.MaxRetries
	}
	if settings.DropState != nil {
		s.dropState = *settings.DropState
	}
	if settings.MaxRetries != nil {
		s.retries = *settings.MaxRetries
	}
	if settings.KeepFailed != nil {
		s.keepFailed = *settings.KeepFailed
	}
	return s
}
