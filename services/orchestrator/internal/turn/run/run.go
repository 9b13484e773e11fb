// Package run drives a turn that was begun to its end. A turn is a state machine over its stages: the
// states and the transitions between them are a table in machine.go.
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
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/conclude"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/publish"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/step"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Config has the dependencies of running turns.
type Config struct {
	Memory    lease.Memory
	Renewal   time.Duration // between two renewals of a lease (0 means lease.Interval)
	Publisher *publish.Publisher
	Closer    *conclude.Closer
	Steps     *step.Services
	Active    *active.Table
	Drain     *active.Drain
	// ReadyInstances counts the instances of an agent that could take a step.
	ReadyInstances func(agent string) int
	Dispatcher     *dispatch.Dispatcher
	Telemetry      *telemetry.Telemetry
}

// Driver drives turns. Safe for concurrent use.
type Driver struct{ Config }

// New returns a driver.
func New(cfg Config) *Driver { return &Driver{cfg} }

// BegunTurn is a turn that this orchestrator has begun, or taken over, in the memory service.
type BegunTurn struct {
	Request      request.Request
	Begin        memory.Begin // that it was begun with; Start asks with it again to reclaim the turn
	Turn         session.Turn
	Target       string
	Flow         *workflow.Workflow
	Conversation assignment.Conversation // the window of the session, before any step
	Rerun        map[int]string          // agents of the steps that failed and run again, by number, of a turn that resumes another
	JournalsKept bool                    // the memory service keeps what the steps do, for a replay
	Permit       *admission.Permit       // Start ends it with the turn
	Began        time.Time
	Timeout      time.Duration // of the turn
	TimeLeft     time.Duration // of the timeout
	Takeover     *Takeover     // nil when a request began the turn
}

// Takeover holds the data about a turn that this orchestrator has taken over.
type Takeover struct {
	CredentialsLost bool  // its request had credentials, which are stored nowhere
	AbandonErr      error // why the turn is ended and not continued (nil means that it is continued)
	StopErr         error // why the turn was asked to end (nil means that it was not)
}

// traceTimeout returns the timeout to store with the trace (0 when an earlier owner has stored it).
func (b BegunTurn) traceTimeout() time.Duration {
	if b.Takeover != nil {
		return 0
	}
	return b.Timeout
}

// Start opens the trace of a turn and sets the turn going. It runs on its own from then on, under its
// own deadline. When the trace cannot be opened Start fails the turn, so that its session need not wait
// for the lease to run out; while the store is only away it leaves the turn to the next one who asks.
// Unless Start succeeds the caller still owns the permit.
func (d *Driver) Start(ctx context.Context, b BegunTurn) error {
	handle := active.NewTurn(b.Request.Ref, b.Turn.ID, b.Turn.Trace, b.Request.AllowanceOr(b.Flow.Budget).Limits.FanOut)
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
	t := &Turn{driver: d, begun: b, handle: handle, lease: lease.New(d.Memory, b.Begin, b.Turn.Epoch, d.Renewal)}
	if err := t.open(ctx); err != nil {
		return err
	}
	started = true
	d.Drain.Go(func() { t.run(ctx) })
	return nil
}

// Turn is a turn that runs. One goroutine owns it.
type Turn struct {
	driver *Driver
	begun  BegunTurn
	handle *active.Turn
	lease  *lease.Lease
	events *publish.Writer
	steps  *step.Turn

	cursor       *cursor.Cursor
	conversation assignment.Conversation
	decisionTime time.Duration // that the last decision about the next steps took
	err          error         // why there is no answer
	unwatch      func()        // ends the warning about time
}

// open opens the trace.
func (t *Turn) open(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	b := t.begun
	t.events, err = t.driver.Publisher.Open(ctx, publish.Turn{
		Request: b.Request, Turn: b.Turn, Target: b.Target, Fingerprint: b.Begin.Fingerprint, Timeout: b.traceTimeout(),
		HasCredentials: b.Takeover != nil && b.Takeover.CredentialsLost, MaxSteps: b.Flow.MaxSteps, Allowance: b.Request.AllowanceOr(b.Flow.Budget),
	}, b.Turn.Attempt > 1)
	if err == nil {
		t.steps = t.driver.Steps.ForTurn(&assignment.Turn{
			Request: b.Request, Turn: b.Turn, Flow: b.Flow, Lease: t.lease, JournalsKept: b.JournalsKept,
		}, t.events, b.Turn.Attempt > 1)
		t.conversation = b.Conversation
		return nil
	}
	err = fmt.Errorf("open trace %s: %w", b.Turn.Trace, err)
	if failure.Is(err, failure.SystemNetwork, failure.SystemTimeout) || ctx.Err() != nil {
		return err
	}
	if _, failErr := t.lease.Fail(ctx, session.OutcomeFailed, publish.Failure(nil, b.Turn.Trace, err)); failErr != nil {
		t.driver.Telemetry.Log.Error("turn not closed; its lease will run out", zap.String("trace", b.Turn.Trace), zap.Error(failErr))
	}
	return err
}

// run drives the turn to its end, within what is left of its timeout. ctx has no deadline and is not
// cancelled: the turn has its own.
func (t *Turn) run(ctx context.Context) {
	b := t.begun
	defer t.driver.Active.Remove(t.handle)
	defer b.Permit.Release(true)
	defer b.Request.Auth.Wipe()
	ctx, cancel := context.WithTimeout(rpc.WithRun(ctx, t.events.Root()), max(0, b.TimeLeft)+conclude.Timeout)
	defer cancel()
	work, stop := context.WithTimeoutCause(ctx, b.TimeLeft,
		failure.Newf(failure.AgentTimeout, "turn", "the turn did not end within its %s; ask for a longer timeout or a smaller thing", b.Timeout))
	defer stop()
	work, abort := context.WithCancelCause(work)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer abort(nil)
	log := t.events.Log().With(zap.String("trace", b.Turn.Trace))
	watching.Go(func() { panics.Guard("turn.watchStop", abort, func() { t.watchStop(work, abort) }) })
	watching.Go(func() { panics.Guard("turn.keepLease", abort, func() { t.lease.KeepAlive(work, abort, log) }) })

	t.drive(work, ctx)
}

// errHandedOver ends the work of a turn that is handed over.
var errHandedOver = failure.New(failure.SystemNetwork, "turn", "the orchestrator stopped before the turn ended; another one takes it over")

// watchStop cancels the work when the orchestrator stops, the turn is cancelled, or another owner has claimed
// the trace.
func (t *Turn) watchStop(work context.Context, abort context.CancelCauseFunc) {
	select {
	case <-t.driver.Drain.HandingOver():
		abort(errHandedOver)
	case why := <-t.handle.StopRequests():
		abort(why)
	case <-t.events.Events().Rejected():
		abort(failure.New(failure.TraceOrphaned, "turn", "the events of the turn can no longer be stored"))
	case <-work.Done():
	}
}

// isHandedOver reports whether the work ended because the orchestrator stops.
func isHandedOver(work context.Context) bool { return errors.Is(context.Cause(work), errHandedOver) }
