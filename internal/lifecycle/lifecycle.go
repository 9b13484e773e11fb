// Package lifecycle implements the lifecycle of a worker's instance: seven states, the verbs that lead
// between them, the admission of steps, and startup and shutdown within bounds.
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
//	BUSY           no-op     runs, or full      when steps end  withdraws   drains, ends
//	PAUSED         no-op     instance_paused    no-op           READY       ends
//	SHUTTING_DOWN  rejected  instance_draining  rejected        rejected    joins, may shorten
//	TERMINATED     rejected  instance_draining  rejected        rejected    no-op
//
// Invariants:
//
//	I1  Steps begin in READY and BUSY only, and not while the lease is EXPIRED.
//	I2  TERMINATED is final.
//	I3  At most Capacity steps run at once.
//	I4  No step runs in PAUSED.
//	I5  A shutdown reaches TERMINATED within its deadline and a second.
//	I6  The version grows by one with each transition.
//	I7  A repeated verb succeeds and changes nothing.
//	I8  The status already shows what a verb has answered.
//
// Package process starts and stops the parts of the process around the instance.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Instance implements the lifecycle of one instance. It is safe for concurrent use. Status and Metrics never
// block, even while a hook hangs (LC-5: an operator must be able to see a worker that is stuck).
type Instance struct {
	cfg   Config
	hooks hooks

	mu     sync.Mutex
	record statusRecord
	steps  map[*runningStep]struct{} // steps that run now
	pause  *pendingPause             // the Pause that waits for steps (nil for none)

	startup       *operation    // the first Startup (nil before it)
	start         startConfig   // how the first Startup starts the instance
	startHookDone chan struct{} // closed when the Start hook will not run again
	shutdown      *operation    // the first Shutdown (nil before it)
	drainDeadline *deadline     // deadline for draining steps in the shutdown
}

// operation is a running or finished Startup or Shutdown, which concurrent callers join.
type operation struct {
	cancel context.CancelFunc // cancels a startup (nil for a shutdown)
	done   chan struct{}
	err    error // valid once done is closed
}

// New returns an instance in state UNINITIALIZED.
func New(cfg Config) *Instance {
	cfg = cfg.withDefaults()
	return &Instance{
		cfg:           cfg,
		hooks:         hooks{cfg},
		record:        newStatusRecord(cfg.Capacity),
		steps:         map[*runningStep]struct{}{},
		startHookDone: make(chan struct{}),
	}
}

// Status returns the current status of the instance.
func (i *Instance) Status() Status {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.record.Status
}

// Watch returns the status and a channel that is closed when the status next changes.
func (i *Instance) Watch() (Status, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.record.Status, i.record.changed
}

// Metrics returns the current metrics, including the active time up to now.
func (i *Instance) Metrics() Metrics {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.record.currentMetrics()
}

// Transitions returns the transitions after the given version, in order and without a gap. It also returns the
// resulting status, and a channel that is closed when the status next changes. It fails with user_invalid_input if
// the version is higher than the current one. It fails with resource_quota if the instance no longer remembers all
// transitions after the version.
func (i *Instance) Transitions(after uint64) ([]Transition, Status, <-chan struct{}, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	transitions, err := i.record.transitionsAfter(after)
	if err != nil {
		return nil, i.record.Status, nil, err
	}
	return transitions, i.record.Status, i.record.changed, nil
}

// SetLease sets the state of the instance's registration lease. While the lease is EXPIRED, no step is admitted.
// Running steps continue.
func (i *Instance) SetLease(l Lease) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.record.Lease != l {
		i.record.Lease = l
		i.record.notifyWatchers()
	}
}

// awaitStatus blocks until the status satisfies the predicate, or ctx ends.
func (i *Instance) awaitStatus(ctx context.Context, satisfies func(Status) bool) error {
	for {
		status, changed := i.Watch()
		if satisfies(status) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// RunWith starts the instance, runs body, and shuts the instance down with this drain and reason. It shuts down even if
// the start fails or body panics (LC-31: no caller can forget the shutdown). If the start fails and KeepFailed is set,
// body runs too: it decides how long the failed instance stays. RunWith returns the error of the start or of body,
// joined with the error of the shutdown.
func (i *Instance) RunWith(ctx context.Context, drain time.Duration, reason string, body func(ctx context.Context, started error) error) (err error) {
	defer func() {
		err = errors.Join(err, i.Shutdown(context.WithoutCancel(ctx), drain, reason))
	}()
	started := i.Startup(ctx)
	if started != nil && i.Status().State != Initializing {
		return started
	}
	return errors.Join(started, body(ctx, started))
}

// KeepsState reports whether the shutdown persists the state of the agent.
func (i *Instance) KeepsState() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !i.start.dropState
}

// newWrongStateError returns the error for a verb that is not allowed in the actual state.
func newWrongStateError(verb string, actual State, required ...State) error {
	return failure.Newf(failure.AgentState, "lifecycle."+verb, "the instance is %s; %s needs %v", actual, verb, required).
		With("actual_state", string(actual)).With("required_state", fmt.Sprint(required))
}

// cause is the call that causes a transition.
type cause struct{ traceID, caller string }

type causeKey struct{}

// ContextWithCause returns a context with a trace id and the name of a caller (empty for the process itself). Transitions
// caused with this context record them.
func ContextWithCause(ctx context.Context, traceID, caller string) context.Context {
	return context.WithValue(ctx, causeKey{}, cause{traceID, caller})
}

func causeFromContext(ctx context.Context) cause {
	c, _ := ctx.Value(causeKey{}).(cause)
	return c
}
