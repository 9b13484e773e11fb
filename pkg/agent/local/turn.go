package local

import (
	"context"
	"crypto/rand"
	"iter"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/errortype"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local/internal/storage"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Turn carries one input of the user to the agent's answer. It runs while its events are read, and again each time the
// sequence is ranged over. The user's message is stored before the first event, and the turn before the last event
// (LP-13, C-19). So the session takes the next turn as soon as the last event is seen (C-37). Events whose kind begins
// with event.Internal are left out (LP-24).
//
// The last event is always exactly one event.TurnResult, and an error of the turn follows it. Its mode is
// user_invalid_input for an invalid input, or the mode of the agent's or the store's error. What the agent said before
// an error is stored. The next turn may try again with Continue (LP-17), without a new message.
//
// A rejected turn has that one event, and no error follows: its Reason is event.Failed, its ErrorType session_busy or
// session_closed, and Result.Failure has the details (LP-7). A turn is rejected while another one runs, here or
// elsewhere, and when the session is not started.
//
// A caller that stops reading cancels the turn.
func (s *Session) Turn(ctx context.Context, in Input) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		t := &turn{session: s, yield: yield}
		if err := in.check(); err != nil {
			t.reject(err, err)
			return
		}
		stop, askToStop := context.WithCancel(context.WithoutCancel(ctx))
		defer askToStop()
		if err := s.status.Claim("local.Turn", askToStop); err != nil {
			t.reject(err, nil)
			return
		}
		defer t.closeAborted()
		t.run(ctx, stop, in)
	}
}

// Ask runs a turn with a text of the user and returns the agent's text (CO-73). Each call continues the conversation.
// Its errors are those of Execute.
func (s *Session) Ask(ctx context.Context, text string) (string, error) {
	done, err := s.Execute(ctx, Input{Text: text}, nil)
	return done.Result.Text, err
}

// Execute runs a turn and returns its result. All events but the last go to emit (nil drops them). A rejected turn is an
// error here. An error of emit cancels the turn and is returned as it is.
func (s *Session) Execute(ctx context.Context, in Input, emit func(event.Event) error) (event.TurnResult, error) {
	var done event.TurnResult
	for e, err := range s.Turn(ctx, in) {
		if err != nil {
			return done, err
		}
		if result, ok := e.Payload.(event.TurnResult); ok {
			done = result
			continue
		}
		if emit == nil {
			continue
		}
		if err := emit(e); err != nil {
			return done, err
		}
	}
	if done.Result.Failure != nil {
		return done, done.Result.Failure
	}
	return done, nil
}

// turn is one execution of Session.Turn. It begins, runs the agent, stores the outcome and emits it. It holds the
// claim of the session until release.
type turn struct {
	session       *Session
	yield         func(event.Event, error) bool
	open          *openTurn              // (nil until the turn has begun)
	readerStopped bool                   // the reader of the events has stopped
	agentResult   event.Event            // event with the agent's TurnResult
	said          []conversation.Message // the agent's messages so far, kept if the turn fails
	happened      []event.Event          // so far, for the trace of the session
	released      bool
}

// run runs the turn from its beginning to its last event.
func (t *turn) run(ctx, stop context.Context, in Input) {
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	open, found, err := t.begin(running, end, in)
	switch {
	case err != nil:
		t.release("")
		var follows error
		if !failure.Is(err, failure.SessionBusy, failure.SessionClosed) {
			follows = err
		}
		t.reject(err, follows)
		return
	case found != nil:
		t.deliverStored(ctx, *found)
		return
	}
	t.open = open
	inv := agent.Invocation{Step: open.step, Store: open.store, Stop: stop, MaxIterations: in.MaxIterations}
	for e, failed := range t.session.agent.Run(execution.WithAuth(running, in.Auth), inv) {
		if failed != nil {
			err = failure.FromCause(running, failed)
			break
		}
		if t.readerStopped = !t.emit(e); t.readerStopped {
			break
		}
	}
	t.finish(ctx, err)
}

// emit forwards an event of the agent to the reader and collects what must be stored. It reports false if the
// reader has stopped.
func (t *turn) emit(e event.Event) bool {
	if _, ended := e.Payload.(event.TurnResult); !ended && !event.IsTransient(e.Payload) {
		t.happened = append(t.happened, e)
	}
	if e.Branch == "" { // results and messages of child agents do not belong to the session
		switch p := e.Payload.(type) {
		case event.TurnResult:
			t.agentResult = e
			return true
		case event.MessageAppended:
			m, _ := p.Message.CutToLimit()
			if m.Text != "" || len(m.ToolCalls) > 0 { // an empty message is not stored
				t.said = append(t.said, m)
			}
		}
	}
	if strings.HasPrefix(e.Kind(), event.InternalPrefix) {
		return true
	}
	return t.yield(e, nil)
}

// finish stores the turn and emits its last event.
func (t *turn) finish(ctx context.Context, err error) {
	done, _ := t.agentResult.Payload.(event.TurnResult)
	if t.readerStopped {
		err = failure.New(failure.UserCancelled, "local.Turn", "the turn was cancelled: its events were not read to the end")
	}
	t.open.conclude(done, t.said, err)
	ctx, before := context.WithoutCancel(ctx), t.session.Info().Size.Messages
	state, unstored := t.store(ctx)
	if err == nil {
		err = unstored
	}
	var warnings []event.Payload
	if t.open.lease != nil {
		for _, w := range t.open.lease.writer.Warnings {
			warnings = append(warnings, w)
		}
	}
	if unstored == nil {
		warnings = append(warnings, t.session.checkLength(ctx, before)...)
	}
	last := t.lastEvents(warnings, done, err)
	t.happened = append(t.happened, last...)
	t.release(state)
	if t.readerStopped {
		return
	}
	for _, e := range last {
		if !t.yield(e, nil) {
			return
		}
	}
	if err != nil {
		t.yield(event.Event{}, err)
	}
}

// lastEvents returns the warnings and the last event of the turn.
func (t *turn) lastEvents(warnings []event.Payload, done event.TurnResult, err error) []event.Event {
	var all []event.Event
	last := t.agentResult
	for _, w := range warnings {
		e := last
		e.Payload, e.Time = w, time.Now()
		last.Sequence++
		all = append(all, e)
	}
	done.Expected, done.Rebase = nil, nil
	done.Turn, done.Messages, done.State = t.open.record.Number, t.open.record.Messages, t.open.record.State
	last.Payload = done
	if err != nil && done.ErrorType != errortype.Of(err) { // the agent did not know about it
		last = t.newFailedEvent(t.open.record.ID, last.Sequence, done, err)
	}
	return append(all, last)
}

// conclude copies the agent's result, or what it had said until its error, into the record of the turn.
func (ot *openTurn) conclude(done event.TurnResult, said []conversation.Message, err error) {
	t := ot.record
	if err == nil {
		t.Messages, t.Result, t.Outcome = done.Messages, done.Result, session.OutcomeCompleted
		t.SetRounds(done.Rounds)
		t.State, t.Expected, t.Rebase = done.State, done.Expected, done.Rebase
		if done.Result.InputRequired {
			t.Outcome = session.InputOutcome(done.Result)
		}
	} else {
		t.SetSaid(said)
		outcome := session.OutcomeFailed
		if failure.Is(err, failure.UserCancelled) {
			outcome = session.OutcomeCancelled
		}
		t.MarkFailed(outcome, storage.FailureFromError(err))
	}
	if ot.lease != nil {
		t.RoundMessages = ot.lease.journal.ReferToEntries(t.RoundMessages)
	}
}

// closeAborted ends a turn whose reader panicked or ended its goroutine.
func (t *turn) closeAborted() {
	if t.released {
		return
	}
	if t.open == nil {
		t.release("")
		return
	}
	t.open.conclude(event.TurnResult{}, t.said, failure.New(failure.UserCancelled, "local.Turn", "the turn was cancelled: the reader of its events failed"))
	state, _ := t.store(context.Background())
	t.release(state)
}

// release ends the claim and sets the session's state (empty keeps it).
func (t *turn) release(state session.State) {
	t.released = true
	t.session.entries.add(t.happened...)
	t.session.status.Release(state)
}

// reject emits the last event of a turn that did not begin, and then the error follows if it is not nil.
func (t *turn) reject(why, follows error) {
	last := t.newFailedEvent(rand.Text(), 1, event.TurnResult{Turn: t.session.Info().Turns + 1}, why)
	if t.yield(last, nil) && follows != nil {
		t.yield(event.Event{}, follows)
	}
}

// newFailedEvent returns the last event of a turn that failed, for turns without one from the agent.
func (t *turn) newFailedEvent(id string, sequence int, done event.TurnResult, why error) event.Event {
	done.SetError(why)
	name := t.session.agent.Name()
	done.Result = execution.Result{Agent: name, Failure: storage.FailureFromError(why), Usage: done.Result.Usage}
	return event.Event{Invocation: id, Sequence: sequence, Time: time.Now(), Author: name, Payload: done}
}

// deliverStored emits the result of a stored turn whose answer was never delivered.
func (t *turn) deliverStored(ctx context.Context, found session.Turn) {
	messages, err := t.session.storage.MessagesAfter(ctx, max(0, found.Sequence-memory.MaxWindow))
	var rounds []conversation.Rounds
	if err == nil && len(messages) > 0 {
		rounds, err = t.session.storage.Rounds(ctx, t.session.agent.Name(), messages[0].Sequence)
	}
	if err != nil {
		t.release("")
		t.reject(err, err)
		return
	}
	done := event.TurnResult{Turn: found.Number, Reason: event.Natural}
	for _, m := range messages {
		if m.Turn == found.Number && m.Role != conversation.RoleUser {
			done.Messages = append(done.Messages, m)
		}
	}
	for _, r := range rounds {
		if r.Turn == found.Number {
			done.Rounds = append(done.Rounds, r.Messages...)
		}
	}
	if n := len(found.Steps); n > 0 {
		done.Result = found.Steps[n-1]
	}
	if u := done.Result.Usage; u != (execution.Usage{}) {
		done.Usage = &u
	}
	switch result := done.Result; {
	case result.Incomplete == string(event.MaxIterations):
		done.Reason = event.MaxIterations
	case result.InputRequired:
		done.Reason = event.InputRequired
	case result.Stopped:
		done.Reason = event.Stopped
	}
	t.session.opener.SetUndelivered("")
	t.release("")
	t.yield(event.Event{Invocation: found.ID, Sequence: 1, Time: time.Now(), Author: t.session.agent.Name(), Payload: done}, nil)
}
