package turn

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/tracelog"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	gate "github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/cursor"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// turn is one turn being driven. One goroutine owns it.
type turn struct {
	*Runner
	log      *zap.Logger // of the runner, and of the run once that is known
	pass     *gate.Pass  // its place among the turns that there may be at once
	req      Request
	begin    memory.Begin // with which it began
	target   string       // what the request's target stands for
	flow     *workflow.Workflow
	turn     session.Turn
	events   *trace.Log
	order    order // of what it tells
	began    time.Time
	history  []conversation.Message // the window, grown by what the steps say
	base     int64                  // last message of the session
	known    []execution.Result     // steps that an earlier owner saw committed, or the turn that this one goes on with
	redo     map[int]string         // agents of the steps that are to be done again, of a turn that goes on with one that failed
	answered int                    // number of the step that waited for the answers of this turn; 0: none did
	recorded bool                   // the memory service keeps what its steps do, for a replay
	resumed  bool                   // it was taken over, and no step was dispatched since
	told     trace.Told             // what an earlier owner told of its steps
	lacking  bool                   // its request had credentials that this owner does not have
	timeout  time.Duration          // of the turn; 0: that of its trace, which was adopted
	hopeless error                  // why it is not gone on with; nil: it is
	results  []execution.Result     // steps of this turn, in order

	translation tracelog.Translator // of its events, for the log, and what they tell of the budget
	allowed     allowance
	width       int64 // how many turns may run below it at once; not changed

	deciding  time.Duration // that the last decisions took
	unsettled bool          // a choice was told that may not be stored yet

	holding  sync.Mutex // one call at a time that the epoch of the turn depends on
	credited sync.Once  // that a worker was given a credential is told once

	cancel chan error    // takes one: why the turn shall end
	over   chan struct{} // closed when nothing of it runs any more
}

// run drives the turn to its end, within what is left of its timeout. ctx has no deadline and
// is not cancelled: the turn has its own.
func (t *turn) run(ctx context.Context, timeout, left time.Duration) {
	defer t.seats.ended(t)
	defer t.pass.End(true)
	defer t.req.Auth.Wipe()
	ctx, cancel := context.WithTimeout(rpc.InRun(ctx, t.events.Root()), max(0, left)+closeTime)
	defer cancel()
	work, stop := context.WithTimeoutCause(ctx, left,
		failure.Newf(failure.AgentTimeout, "turn", "the turn did not end within its %s; ask for a longer timeout or a smaller thing", timeout))
	defer stop()
	work, abort := context.WithCancelCause(work)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer abort(nil)
	beside.Go(func() { panics.Guard("turn.watchStop", abort, func() { t.watchStop(work, abort) }) })
	beside.Go(func() { panics.Guard("turn.keep", abort, func() { t.keep(work, abort) }) })

	err := t.drive(work, ctx, timeout)
	if err != nil && work.Err() != nil {
		err = context.Cause(work)
	}
	if err != nil && errors.Is(context.Cause(work), errHandedOver) && t.handOver(ctx) {
		return
	}
	outcome := session.OutcomeFailed
	if failure.Is(context.Cause(work), failure.UserCancelled) {
		outcome = session.OutcomeCancelled
	}
	if broken := t.close(ctx, outcome, err); broken != nil {
		t.Telemetry.Panics.Note(ctx, broken)
		t.log.Error("turn not closed", zap.String("trace", t.turn.Trace), zap.Error(broken))
		t.Traces.Abandon(ctx, t.events)
	}
	t.sweep(ctx, err)
}

var errHandedOver = failure.New(failure.SystemNetwork, "turn", "the orchestrator stopped before the turn ended; another goes on with it")

// handOver gives the turn up for another orchestrator to go on with at once. It is false when
// the turn is closed already.
func (t *turn) handOver(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beginTime)
	defer cancel()
	_, err := retry.Do(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, t.Memory.ReleaseTurn(ctx, memory.Hold{Ref: t.req.ref(), TurnID: t.turn.ID, Epoch: t.turn.Epoch})
	})
	if failure.Is(err, failure.TurnNotOpen, failure.SessionDeleted) {
		return false
	}
	t.Traces.Abandon(ctx, t.events)
	if failure.Is(err, failure.Fenced, failure.NotFound) {
		return true // it is another's already
	}
	if free := t.Traces.Store().Free(ctx, t.events.Ref()); err == nil {
		err = free
	}
	if err != nil {
		t.log.Warn("turn not handed over at once", zap.String("trace", t.turn.Trace), zap.Error(err))
	}
	return true
}

// watchStop ends the work when the runner stops, the turn is cancelled, or the store has
// given the trace to another owner.
func (t *turn) watchStop(work context.Context, abort context.CancelCauseFunc) {
	select {
	case <-t.stopped:
		abort(errHandedOver)
	case why := <-t.cancel:
		abort(why)
	case <-t.events.Refused():
		abort(failure.New(failure.TraceOrphaned, "turn", "the events of the turn can no longer be stored"))
	case <-work.Done():
	}
}

// stopFor asks the turn to end.
func (t *turn) stopFor(why error) {
	select {
	case t.cancel <- why:
	default: // it was asked before
	}
}

// drive goes from stage to stage until the turn is over. It fails with why there is no
// answer. Events are stored under ctx, which outlives the work.
func (t *turn) drive(work, ctx context.Context, timeout time.Duration) (err error) {
	defer panics.Recover("turn", &err)
	if t.events.Empty() {
		if err := t.initialize(ctx); err != nil {
			return err
		}
	} else if err := t.resume(work, ctx); err != nil {
		return err
	}
	defer t.watchTime(work, ctx, timeout)()
	var course *cursor.Cursor
	err = t.decide(func() (err error) { course, err = cursor.New(t.flow, t.history, t.chooser(ctx)); return err })
	for err == nil {
		if err := t.elsewhere(course.Round()); err != nil || len(course.Round()) == 0 {
			return err
		}
		results, err := t.round(work, ctx, course)
		if err != nil {
			return err
		}
		if err := t.decide(func() error { return course.Advance(results) }); err != nil {
			return err
		}
		if err := t.survived(work, results); err != nil {
			return err
		}
	}
	return err
}

// survived waits until the failures of a round are stored, if there are any. Only the trace has
// them, and the way of the turn depends on them: without them, who takes it over might come to
// other steps under the numbers of those that have run, or run a tool again under another one.
func (t *turn) survived(work context.Context, round []execution.Result) error {
	if slices.ContainsFunc(round, func(r execution.Result) bool { return r.Failure != nil }) {
		return t.stored(work)
	}
	return nil
}

// round has the steps of a round done, but for those that an earlier owner of the turn is
// through with, and returns their results in order.
func (t *turn) round(work, ctx context.Context, course *cursor.Cursor) ([]execution.Result, error) {
	tasks := course.Round()
	var open []*attempt
	for i, known := range cursor.PriorResults(tasks, t.known, t.reached()) {
		task := tasks[i]
		switch {
		case known == nil:
			open = append(open, t.attempt(task))
		case !t.isTold(task.Number):
			if err := errors.Join(t.routed(ctx, task), t.tell(ctx, *known)); err != nil {
				return nil, err
			}
			fallthrough
		default:
			t.add(task, *known)
		}
	}
	for _, a := range open {
		if err := t.routed(ctx, a.task); err != nil {
			return nil, err
		}
	}
	if err := t.settled(work); err != nil {
		return nil, err
	}
	if err := t.attempts(work, ctx, course, open); err != nil {
		return nil, err
	}
	for _, a := range open {
		t.add(a.task, a.result)
	}
	slices.SortFunc(t.results, func(a, b execution.Result) int { return cmp.Compare(a.Step, b.Step) })
	return t.results[len(t.results)-len(tasks):], nil
}

// reached is the number of a step to which the turn before this one had come; 0: there was none.
func (t *turn) reached() int {
	last := t.answered
	for step := range t.redo {
		last = max(last, step)
	}
	return last
}

// add makes a result part of the turn: what the agent said is in the session now, unless it
// was not for it.
func (t *turn) add(task cursor.Task, r execution.Result) {
	t.results = append(t.results, r)
	if r.Failure != nil {
		return
	}
	t.base = max(t.base, r.Sequence) // that of a step from the turn before this one lies below
	if !task.IsHidden() && r.Text != "" {
		said := conversation.Assistant(r.Agent, r.Text)
		said.Untrusted = r.Untrusted
		said.Sequence, said.Turn = r.Sequence, t.turn.Number
		t.history = append(t.history, said)
	}
}

// close closes the turn, then its trace: history committed, session ready, last event
// durable, and only then sent (C-37). It fails when the turn stays open: without an end in
// the session there must be none on the trace, and the same request takes the turn over
// once its lease has run out.
func (t *turn) close(ctx context.Context, outcome session.Outcome, err error) (broken error) {
	defer panics.Recover("turn", &broken)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	t.pass.Tell()
	if err == nil {
		t.finish(ctx)
		return nil
	}
	closed, closeErr := t.fail(ctx, outcome, err)
	if failure.Is(closeErr, failure.SessionDeleted) { // and the turn with it
		closed = t.turn
		closed.Outcome, closed.Failure = session.OutcomeFailed, t.failed(closeErr)
		t.end(ctx, closed)
		return nil
	}
	if closeErr != nil {
		return errors.Join(err, closeErr)
	}
	t.told = t.events.Told()
	if untold := t.ifRoom(t.catchUp(ctx, closed.Steps)); untold != nil {
		return errors.Join(err, untold)
	}
	if closed.Outcome == session.OutcomeCompleted || closed.Outcome.Asks() {
		// What ended the work came behind the last commit: the turn has its answer.
		t.results = closed.Steps
		t.finish(ctx)
		return nil
	}
	t.Telemetry.Panics.Note(ctx, err)
	t.log.Warn("turn without an answer", zap.String("trace", t.turn.Trace), zap.String("stage", t.stage(err)), zap.Error(err))
	t.end(ctx, closed)
	return nil
}

// fail closes the turn without an answer, unless its last step has closed it.
func (t *turn) fail(ctx context.Context, outcome session.Outcome, why error) (session.Turn, error) {
	return retry.Do(ctx, func(ctx context.Context) (session.Turn, error) {
		return t.Memory.FailTurn(ctx, memory.Fail{
			Ref: t.req.ref(), TurnID: t.turn.ID, Epoch: t.turn.Epoch,
			Outcome: outcome, Failure: t.failed(why),
		})
	})
}

// finish ends a turn that its last step has closed.
func (t *turn) finish(ctx context.Context) {
	closed := t.turn
	closed.Steps = t.results
	closed.Outcome = session.OutcomeCompleted
	if n := len(t.results); n > 0 && t.results[n-1].InputRequired {
		closed.Outcome = session.Asking(t.results[n-1])
	}
	if err := t.aggregate(ctx); err != nil {
		t.log.Warn("no aggregate event", zap.String("trace", t.turn.Trace), zap.Error(err))
	}
	t.end(ctx, closed)
}

func (t *turn) end(ctx context.Context, closed session.Turn) {
	last := ended(closed)
	duration := time.Since(t.began)
	setDuration(last, duration)
	last.GetTurnResult().Metrics = t.events.Measure(duration)
	last.GetTurnResult().Used = wire.UsedToProto(t.spent().Used())
	last.GetTurnResult().Partial = partial(closed, t.events.Account())
	state := t.coordinated(last)
	last.GetTurnResult().Coordination = state.Proto()
	if err := t.order.to(last.GetStage()); err != nil {
		t.log.Error("turn ended out of order", zap.String("trace", t.turn.Trace), zap.Error(err))
	}
	if err := t.Traces.Close(ctx, t.events, last); err != nil {
		return // said by Close
	}
	t.count(ctx, closed, duration)
	t.observe(ctx, last)
	t.emitState(ctx, state)
	t.quarantine(ctx, last.GetTurnResult())
	t.log.Info("turn ended", zap.String("trace", t.turn.Trace), zap.String("session", t.req.Session), zap.Int("turn", t.turn.Number),
		zap.String("outcome", string(closed.Outcome)), zap.Int("steps", len(t.results)), zap.Duration("duration", duration))
}
