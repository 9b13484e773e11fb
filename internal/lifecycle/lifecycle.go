// Package lifecycle is the machine that every worker's instance runs: seven states, the
// verbs between them, admission of steps, and managed startup and shutdown.
//
//	                Startup            started              step begins
//	UNINITIALIZED ──────────▶ INITIALIZING ──────▶ READY ◀───────────▶ BUSY
//	      │                        │               │   ▲  last step ends  │
//	      │ Shutdown               │ failed,  Pause│   │Resume            │ Pause, once
//	      │                        │ Shutdown      ▼   │                  │ no step runs
//	      │                        │              PAUSED ◀────────────────┤
//	      ▼                        ▼               │        Shutdown      │
//	TERMINATED ◀───────────── SHUTTING_DOWN ◀──────┴──────────────────────┘
//
// The table of guarantees 2.10 is normative:
//
//	               Startup   a step begins      Pause           Resume      Shutdown
//	UNINITIALIZED  starts    agent_state        no-op           no-op       ends, nothing to release
//	INITIALIZING   joins     agent_state        no-op           no-op       cancels the startup, ends
//	READY          no-op     BUSY               PAUSED          no-op       ends
//	BUSY           no-op     runs, or full      when steps end  takes back  drains, ends
//	PAUSED         no-op     instance_paused    no-op           READY       ends
//	SHUTTING_DOWN  refused   instance_draining  refused         refused     joins, may shorten
//	TERMINATED     refused   instance_draining  refused         refused     no-op
//
// Invariants: I1 steps begin in READY and BUSY only, and not while the lease is EXPIRED; I2
// TERMINATED is final; I3 at most Capacity run at once; I4 in PAUSED none runs; I5 a
// shutdown reaches TERMINATED within its deadline and a second; I6 the version grows by one
// per transition; I7 a repeated verb is fine and changes nothing; I8 the status is never
// behind what a verb has answered.
//
// The process side, parts in order, is package process. This is the domain side.
package lifecycle

import (
	"context"
	"sync"
	"time"
)

// Defaults of Config (LC-24 and guarantees 2.11).
const (
	DefaultCapacity       = 16
	DefaultStartupTimeout = 30 * time.Second
	DefaultMaxRetries     = 3
	DefaultDrain          = 30 * time.Second
)

// Config is what an instance is made of; it is never changed. Hooks may be nil. A hook that
// panics has failed; a hook that outlives its context is given up.
type Config struct {
	Capacity       int           // steps at once; 0 means DefaultCapacity
	StartupTimeout time.Duration // bounds Startup, all tries together; 0 means DefaultStartupTimeout
	RetryOnFailure bool          // try a failed start again, up to MaxRetries times (LC-13)
	MaxRetries     int           // 0 means DefaultMaxRetries
	// KeepFailed leaves an instance whose start failed in INITIALIZING with what it took,
	// until Shutdown (cleanup_on_error = false, LC-11).
	KeepFailed bool
	Drain      time.Duration // of a shutdown after a fatal step; 0 means DefaultDrain

	// Start takes the resources of the instance. When it fails, Stop runs, so that must
	// bear a Start that came half way.
	Start func(ctx context.Context) error
	// Leave takes the instance out of discovery. It runs first at shutdown, before steps
	// drain, so that nothing new is routed here.
	Leave func(ctx context.Context) error
	// Stop frees what Start took: after each start that failed, and last in a shutdown, when
	// no step runs any more. The deadline of ctx is that of the shutdown.
	Stop func(ctx context.Context) error
	// Log is told of each error of a start or a shutdown, with the step that it happened in:
	// start, leave, drain or stop (LC-17). It may be called from any goroutine.
	Log func(step string, err error)
}

// Status is the state of an instance with the facts beside it.
type Status struct {
	State    State
	Version  uint64 // +1 per transition
	InFlight int
	Capacity int
	Pausing  bool // Pause accepted while BUSY, not PAUSED yet
	Draining bool // SHUTTING_DOWN, and steps may still end
	Lease    Lease
	Since    time.Time
	Reason   string // as the caller of the last verb gave it
}

// Metrics are counters that only grow (LC-25).
type Metrics struct {
	StartupTime      time.Duration
	ShutdownTime     time.Duration
	ActiveTime       time.Duration // with at least one step running
	TotalRequests    uint64
	FailedRequests   uint64
	StateTransitions uint64
}

// Instance is one instance's lifecycle. Safe for concurrent use; Status and Metrics answer
// at once, whatever hooks do (LC-5).
type Instance struct {
	cfg Config

	mu      sync.Mutex
	status  Status
	metrics Metrics
	active  time.Time     // when READY→BUSY happened
	changed chan struct{} // closed and replaced at each change of the status
	history []Transition  // the latest, oldest first
	steps   map[*step]struct{}
	pause   *pause // that waits for the steps; nil when none does

	startup  *attempt      // set by the first Startup
	hooked   chan struct{} // closed when no Start hook will run any more
	shutdown *attempt      // set by the first Shutdown
	deadline time.Time     // of the shutdown; may only shrink
	shrunk   chan struct{} // closed and replaced when it does
}

// attempt is a startup or a shutdown that concurrent callers join.
type attempt struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid once done is closed
}

// New returns an instance in UNINITIALIZED.
func New(cfg Config) *Instance {
	if cfg.Capacity <= 0 {
		cfg.Capacity = DefaultCapacity
	}
	if cfg.StartupTimeout <= 0 {
		cfg.StartupTimeout = DefaultStartupTimeout
	}
	if cfg.MaxRetries <= 0 {
		cfg.MaxRetries = DefaultMaxRetries
	}
	if cfg.Drain <= 0 {
		cfg.Drain = DefaultDrain
	}
	if cfg.Log == nil {
		cfg.Log = func(string, error) {}
	}
	return &Instance{
		cfg:     cfg,
		status:  Status{State: Uninitialized, Capacity: cfg.Capacity, Since: time.Now()},
		changed: make(chan struct{}),
		steps:   map[*step]struct{}{},
		shrunk:  make(chan struct{}),
		hooked:  make(chan struct{}),
	}
}

// Status is where the instance stands.
func (i *Instance) Status() Status {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.status
}

// Watch returns where the instance stands and a channel that is closed at the next change.
func (i *Instance) Watch() (Status, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.status, i.changed
}

// Metrics are the counters so far.
func (i *Instance) Metrics() Metrics {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.metrics
	if i.status.State == Busy {
		m.ActiveTime += time.Since(i.active)
	}
	return m
}

// to makes a transition, and remembers it with the trace of ctx. Callers hold the lock and
// have checked that it is allowed.
func (i *Instance) to(ctx context.Context, s State, reason string) {
	now := time.Now()
	switch {
	case s == Busy:
		i.active = now
	case i.status.State == Busy:
		i.metrics.ActiveTime += now.Sub(i.active)
	}
	i.remember(Transition{
		From: i.status.State, To: s, Version: i.status.Version + 1, Time: now, Reason: reason, TraceID: tracedBy(ctx),
	})
	i.status.State, i.status.Since, i.status.Reason = s, now, reason
	i.status.Version++
	i.metrics.StateTransitions++
	i.notify()
}

// notify tells the watchers. Callers hold the lock.
func (i *Instance) notify() {
	close(i.changed)
	i.changed = make(chan struct{})
}

// await blocks until reached holds for the status, or ctx ends.
func (i *Instance) await(ctx context.Context, reached func(Status) bool) error {
	for {
		status, changed := i.Watch()
		if reached(status) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
