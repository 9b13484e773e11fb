package agent

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/internal/recorder"
	"github.com/troupe-dev/troupe/internal/turnlease"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// reading is a turn that somebody reads. It has the claim.
type reading struct {
	s     *Session
	yield func(event.Event, error) bool
	deaf  bool // nobody reads any more

	ep      *episode
	scribe  *scribe // nil with NoAutoSave
	keeping sync.WaitGroup
	end     context.CancelCauseFunc // of the agent's run
	drop    context.CancelFunc      // of the lease
	journal *recorder.Recorder

	found *session.Turn // that was closed with an answer, and nothing runs
	last  event.Event   // the agent's TurnResult
	over  bool          // the turn is stored and the session released
}

// run is the turn, from its beginning to its last event.
func (r *reading) run(ctx context.Context, in Input, inv Invocation) {
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	r.end = end
	var err error
	if inv.Step, inv.Store, err = r.begin(running, in); err != nil {
		r.leave("")
		var follows error
		if !failure.Is(err, failure.SessionBusy, failure.SessionClosed) {
			follows = err
		}
		r.s.refuse(r.yield, err, follows)
		return
	}
	if r.found != nil {
		r.tell(ctx)
		return
	}
	for e, failed := range r.s.agent.Run(execution.WithAuth(running, in.Auth), inv) {
		if failed != nil {
			err = failure.FromCause(running, failed)
			break
		}
		if r.deaf = !r.pass(e); r.deaf {
			break
		}
	}
	r.finish(ctx, err)
}

// pass hands an event of the agent on, and keeps what is to be stored. It is false when
// nobody reads any more.
func (r *reading) pass(e event.Event) bool {
	if e.Branch == "" { // what is told of agents below this one is theirs
		switch p := e.Payload.(type) {
		case event.TurnResult:
			r.last = e
			return true
		case event.Appended:
			m := p.Message
			m.Text = conversation.Cut(m.Text, conversation.MaxMessageBytes)
			if m.Text != "" || len(m.ToolCalls) > 0 { // else nothing was said
				r.ep.messages = append(r.ep.messages, m)
			}
		}
	}
	if strings.HasPrefix(e.Kind(), event.Internal) {
		return true
	}
	return r.yield(e, nil)
}

// finish stores the turn and tells its end.
func (r *reading) finish(ctx context.Context, err error) {
	done, _ := r.last.Payload.(event.TurnResult)
	if r.deaf {
		err = failure.New(failure.UserCancelled, "agent.Turn", "the turn was cancelled: nobody read its events")
	}
	r.conclude(done, err)
	ctx, before := context.WithoutCancel(ctx), r.s.Info().Messages
	state, unstored := r.store(ctx)
	if err == nil {
		err = unstored
	}
	var warnings []event.Payload
	if unstored == nil {
		warnings = r.s.bound(ctx, before)
	}
	r.leave(state)
	if r.deaf {
		return
	}
	last := r.last
	for _, w := range warnings {
		e := last
		e.Payload, e.Time = w, time.Now()
		last.Sequence++
		if !r.yield(e, nil) {
			return
		}
	}
	done.Turn, done.Messages, done.State = r.ep.number, r.ep.messages, r.ep.state
	last.Payload = done
	if err != nil && done.ErrorType != string(failure.ModeOf(err)) { // the agent did not know it
		last = r.s.result(r.ep.id, last.Sequence, done, err)
	}
	if r.yield(last, nil) && err != nil {
		r.yield(event.Event{}, err)
	}
}

// conclude completes the episode with what the agent led to.
func (r *reading) conclude(done event.TurnResult, err error) {
	ep := r.ep
	for _, m := range done.Messages { // of an agent that has no copy of the conversation
		said := func(o conversation.Message) bool { return o.Role == m.Role && o.Text == m.Text }
		if !slices.ContainsFunc(ep.messages, said) {
			ep.messages = append(ep.messages, m)
		}
	}
	ep.messages = mended(ep.messages)
	switch {
	case failure.Is(err, failure.UserCancelled):
		ep.fails(session.OutcomeCancelled, asFailure(err))
	case err != nil:
		ep.fails(session.OutcomeFailed, asFailure(err))
	default:
		ep.state, ep.result, ep.outcome = done.State, done.Result, session.OutcomeCompleted
		if done.Result.InputRequired {
			ep.outcome = session.Asking(done.Result)
		}
		if len(done.Result.Pending) > 0 { // the rest is in the journal, and comes again
			ep.messages, ep.state = done.Messages, nil
		}
	}
}

// close ends a turn whose reader panicked or ended its goroutine.
func (r *reading) close() {
	if r.over {
		return
	}
	if r.ep == nil || r.scribe == nil && !r.s.cfg.NoAutoSave { // it did not begin
		r.leave("")
		return
	}
	r.conclude(event.TurnResult{}, failure.New(failure.UserCancelled, "agent.Turn", "the turn was cancelled: who read its events failed"))
	state, _ := r.store(context.Background())
	r.leave(state)
}

// leave gives the session back.
func (r *reading) leave(state session.State) {
	r.over = true
	r.s.release(state)
}

// begin opens the turn and returns what the agent is given.
func (r *reading) begin(ctx context.Context, in Input) (execution.Step, hook.Store, error) {
	s, number := r.s, r.s.Info().Turns+1
	r.ep = &episode{
		id: session.TurnID(s.ref, fmt.Sprintf("%d|%s", number, rand.Text())), trace: newTrace(), number: number, said: in.message(),
	}
	step := execution.Step{SessionID: s.ref.Session, User: s.cfg.User, Number: 1, Attempt: 1, Agent: s.agent.Name(), Broker: s.agent.broker.For(s.ref.Session)}
	var store hook.Store = &buffer{s: s, ep: r.ep}
	if s.cfg.NoAutoSave {
		if err := s.answer(ctx, r.ep, in); err != nil {
			return step, nil, err
		}
		step.History = s.latestOf(append(slices.Clip(s.window), r.ep.all()...))
	} else {
		begun, err := s.begin(ctx, r.ep, in)
		if err != nil {
			return step, nil, err
		}
		if begun.Status == memory.StatusClosed {
			r.found = &begun.Turn
			return step, nil, nil
		}
		if err := r.hold(ctx, begun); err != nil {
			return step, nil, failure.FromCause(ctx, err)
		}
		step.Attempt, step.Journal, step.History, step.Answers = begun.Turn.Attempt, r.journal, begun.History, begun.Turn.Answers
		store = Remember(s.cfg.Store, r.scribe.hold, s.cfg.User)
	}
	step.TurnID, step.TraceID, step.Turn, step.History = r.ep.id, r.ep.trace, r.ep.number, mended(step.History)
	return step, store, nil
}

// hold keeps the lease of the turn that was begun, and opens its journal.
func (r *reading) hold(ctx context.Context, begun memory.Begun) error {
	s := r.s
	w := s.scribe(r.ep, begun)
	keep, drop := context.WithCancel(context.WithoutCancel(ctx))
	r.drop = drop
	r.keeping.Go(func() { turnlease.Renew(keep, s.cfg.Store, w.hold, s.cfg.Lease, r.end) })
	var err error
	if r.journal, err = recorder.New(ctx, r.end, s.cfg.Store, w.hold, 1, begun.Turn.Attempt > 1); err != nil {
		drop()
		r.keeping.Wait()
		r.ep.fails(session.OutcomeFailed, asFailure(err))
		s.left = w
		return err
	}
	r.scribe = w
	return nil
}

// store writes the turn and returns the state to which it leads. What ended by the store's
// refusal, and not by the agent, is an error.
func (r *reading) store(ctx context.Context) (session.State, error) {
	s, ep := r.s, r.ep
	if s.cfg.NoAutoSave {
		s.keep(ep)
		return ep.outcome.After(), nil
	}
	defer func() { // what is stored makes the journal needless, so that goes on until then
		r.journal.Close()
		r.end(nil)
		r.journal.Wait()
		r.drop()
		r.keeping.Wait()
	}()
	turn, err := r.scribe.write(ctx)
	refused := err
	if err != nil && ep.answered() && !unsure(err) {
		ep.fails(session.OutcomeFailed, asFailure(err))
		turn, err = r.scribe.write(ctx)
	}
	switch {
	case err == nil:
		s.wrote(ep.number, r.scribe.base)
		s.waits(ep.id, turn.Steps)
		return turn.Outcome.After(), refused
	case unsure(err):
		if ep.answered() {
			ep.fails(session.OutcomeFailed, asFailure(err))
		}
		s.left = r.scribe
	}
	return session.Failed, refused
}

// unsure reports whether a write may have happened.
func unsure(err error) bool {
	return failure.Is(err, failure.SystemNetwork, failure.SystemTimeout, failure.UserCancelled)
}
