// Package run drives a begun turn to its end. A turn is a state machine; machine.go has the table of its states
// and transitions.
package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/cursor"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/active"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/assignment"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/compact"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/conclude"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/publish"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/step"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Config holds the dependencies and settings of a Driver.
type Config struct {
	Memory          lease.Memory
	RenewalInterval time.Duration // time between two renewals of a lease (0 means lease.Interval)
	Publisher       *publish.Publisher
	Closer          *conclude.Closer
	Steps           *step.Services
	Active          *active.Table
	Drain           *active.Drain
	// ReadyInstances returns how many instances of an agent could take a step.
	ReadyInstances func(agent string) int
	Dispatcher     *dispatch.Dispatcher
	Compactor      *compact.Compactor // shortens long sessions after their turns (nil shortens none)
	Telemetry      *telemetry.Telemetry
}

// Driver drives turns. It is safe for concurrent use.
type Driver struct{ Config }

// New returns a driver.
func New(cfg Config) *Driver { return &Driver{cfg} }

// BegunTurn is a turn that this orchestrator has begun or taken over in the memory service, and that is ready to
// be driven.
type BegunTurn struct {
	Request       request.Request
	Begin         memory.Begin // the request that began the turn; a reclaim sends it again
	Turn          session.Turn
	Target        string
	Flow          *workflow.Workflow
	Conversation  assignment.Conversation // the window of the session, before any step
	Rerun         map[int]string          // agents of the steps that failed and run again, by number, of a turn that resumes another
	KeepsJournals bool                    // whether the memory service keeps the journals of the steps, for a replay
	Permit        *admission.Permit       // released when the turn ends
	Began         time.Time
	Timeout       time.Duration // timeout of the turn
	TimeLeft      time.Duration // rest of the timeout
	Takeover      *Takeover     // nil when a request began the turn
	Growth        compact.Growth
}

// Takeover holds additional data about a turn that this orchestrator has taken over.
type Takeover struct {
	CredentialsLost bool  // whether the request had credentials, which are never stored
	AbandonErr      error // why the turn is abandoned (nil when it continues)
	StopErr         error // why the turn was stopped (nil when no stop was requested)
}

// traceTimeout returns the timeout to store with the trace (0 when an earlier owner has stored it).
func (b BegunTurn) traceTimeout() time.Duration {
	if b.Takeover != nil {
		return 0
	}
	return b.Timeout
}

// Start opens the trace of a turn and drives the turn in the background, under its own deadline. When the trace
// cannot be opened, Start fails the turn, so that its session need not wait for the lease to expire. While the
// store is only unavailable, Start leaves the turn open for the next caller instead. Unless Start succeeds, the
// caller still owns the permit.
func (d *Driver) Start(ctx context.Context, b BegunTurn) error {
	b.Flow = b.Flow.WithErrorStrategy(b.Request.ErrorStrategy)
	handle := active.NewTurn(b.Request.Ref, b.Turn.ID, b.Turn.Trace, b.Request.AllowanceOrDefault(b.Flow.Budget).Limits.FanOut)
	d.Active.Add(handle)
	started := false
	defer func() {
		if !started {
			d.Active.Remove(handle)
		}
	}()
	if b.Takeover != nil && b.Takeover.StopErr != nil {
		handle.Stop(b.Takeover.StopErr)
	}
	t := &Turn{driver: d, begun: b, handle: handle, lease: lease.New(d.Memory, b.Begin, b.Turn.Epoch, d.RenewalInterval)}
	if err := t.open(ctx); err != nil {
		return err
	}
	started = true
	d.Drain.Go(func() { t.run(ctx) })
	return nil
}

// Turn is a running turn. Only its own goroutine uses it.
type Turn struct {
	driver *Driver
	begun  BegunTurn
	handle *active.Turn
	lease  *lease.Lease
	events *publish.Writer
	steps  *step.Turn

	cursor       *cursor.Cursor
	conversation assignment.Conversation
	decisionTime time.Duration // duration of the last decision about the next steps
	err          error         // why there is no answer
	unwatch      func()        // stops WatchTime
}

// open opens the trace.
func (t *Turn) open(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	b := t.begun
	t.events, err = t.driver.Publisher.Open(ctx, publish.Turn{
		Request: b.Request, Turn: b.Turn, Target: b.Target, Fingerprint: b.Begin.Fingerprint, Timeout: b.traceTimeout(),
		HasCredentials: b.Takeover != nil && b.Takeover.CredentialsLost, MaxSteps: b.Flow.MaxSteps, Allowance: b.Request.AllowanceOrDefault(b.Flow.Budget),
	}, b.Turn.Attempt > 1)
	if err == nil {
		t.steps = t.driver.Steps.NewTurn(&assignment.Turn{
			Request: b.Request, Turn: b.Turn, Flow: b.Flow, Lease: t.lease, KeepsJournals: b.KeepsJournals,
		}, t.events, b.Turn.Attempt > 1)
		t.conversation = b.Conversation
		return nil
	}
	err = fmt.Errorf("open trace %s: %w", b.Turn.Trace, err)
	if failure.Is(err, failure.SystemNetwork, failure.SystemTimeout) || ctx.Err() != nil {
		return err
	}
	if _, failErr := t.lease.Fail(ctx, session.OutcomeFailed, publish.NewTurnFailure(nil, b.Turn.Trace, err)); failErr != nil {
		t.driver.Telemetry.Log.Error("turn not closed; its lease will run out", zap.String("trace", b.Turn.Trace), zap.Error(failErr))
	}
	return err
}

// run drives the turn to its end, within the rest of its timeout. ctx has no deadline and is never cancelled,
// because the turn has its own deadline.
func (t *Turn) run(ctx context.Context) {
	b := t.begun
	defer t.driver.Active.Remove(t.handle)
	defer b.Permit.Release(true)
	defer b.Request.Auth.Wipe()
	ctx, cancel := context.WithTimeout(rpc.WithRun(ctx, t.events.RootTrace()), max(0, b.TimeLeft)+conclude.Timeout)
	defer cancel()
	work, stop := context.WithTimeoutCause(ctx, b.TimeLeft,
		failure.Newf(failure.AgentTimeout, "turn", "the turn did not end within its %s; ask for a longer timeout or a smaller thing", b.Timeout))
	defer stop()
	work, abort := context.WithCancelCause(work)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer abort(nil)
	log := t.events.Logger().With(zap.String("trace", b.Turn.Trace))
	watching.Go(func() { panics.Guard("turn.watchStop", abort, func() { t.watchStop(work, abort) }) })
	watching.Go(func() { panics.Guard("turn.keepLease", abort, func() { t.lease.KeepAlive(work, abort, log) }) })

	t.drive(work, ctx)
}

// errHandedOver is the cause with which the work of a turn ends when the turn is handed over.
var errHandedOver = failure.New(failure.SystemNetwork, "turn", "the orchestrator stopped before the turn ended; another one takes it over")

// watchStop cancels the work when the turn must be handed over, the turn is cancelled, or another owner has
// claimed the trace.
func (t *Turn) watchStop(work context.Context, abort context.CancelCauseFunc) {
	select {
	case <-t.driver.Drain.HandoverStarted():
		abort(errHandedOver)
	case why := <-t.handle.StopRequests():
		abort(why)
	case <-t.events.EventLog().Rejected():
		abort(failure.New(failure.TraceOrphaned, "turn", "the events of the turn can no longer be stored"))
	case <-work.Done():
	}
}

// isHandedOver reports whether the work ended because the turn must be handed over.
func isHandedOver(work context.Context) bool { return errors.Is(context.Cause(work), errHandedOver) }
