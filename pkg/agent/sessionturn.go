package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Input is what a turn begins with.
type Input struct {
	Text string // what the user says, 1 byte to conversation.MaxMessageBytes
	// Continue goes on where the conversation is, and appends no message of the user (LP-8).
	// There is no Text then. A turn that was lost with its process is taken up where it was:
	// nothing of it runs twice that need not. One that is stored with its answer, of which nobody
	// was told here, does not run again: its event.TurnResult is the only event. While calls
	// wait for Answers, Continue is refused.
	Continue bool
	// Answers go on with the calls that wait (Session.Pending), of which one at least is answered,
	// and append no message of the user. Calls without an answer wait again; what was done before
	// is not done again (LP-32). There is neither Text nor Continue then, and By is the actor of
	// Auth when it is empty. After an error of the store the same Answers, or Continue, go on with
	// the same turn. A Text instead leaves the calls that wait, for good.
	Answers []execution.Answer
	// Auth is in whose name the turn acts. Tools and the model find it during this turn; it is
	// stored nowhere (LP-18).
	Auth          execution.Auth
	MaxIterations int // overrides that of the agent; 0 does not (CO-6)
}

func (in Input) check() error {
	wrong := func(format string, args ...any) error {
		return failure.Newf(failure.UserInvalidInput, "agent.Turn", format, args...)
	}
	switch {
	case in.Continue && in.Text != "":
		return wrong("Text: a turn that continues has none; leave out one of Text and Continue")
	case len(in.Answers) > 0 && (in.Continue || in.Text != ""):
		return wrong("Answers: a turn that brings them has neither Text nor Continue; leave these out")
	case len(in.Answers) > 0 && slices.ContainsFunc(in.Answers, func(a execution.Answer) bool { return !utf8.ValidString(a.Text + a.By) }):
		return wrong("Answers: a text is not valid UTF-8")
	case !in.silent() && strings.TrimSpace(in.Text) == "":
		return wrong("Text is empty; say something, or set Continue to go on without")
	case len(in.Text) > conversation.MaxMessageBytes:
		return wrong("Text: %d bytes are too long; send at most %d", len(in.Text), conversation.MaxMessageBytes)
	case !utf8.ValidString(in.Text):
		return wrong("Text is not valid UTF-8")
	case in.MaxIterations < 0 || in.MaxIterations > MaxIterations:
		return wrong("MaxIterations %d: use 0 to %d", in.MaxIterations, MaxIterations)
	}
	return nil
}

// silent reports whether the user says nothing.
func (in Input) silent() bool { return in.Continue || len(in.Answers) > 0 }

// message is what the user says; zero: nothing.
func (in Input) message() conversation.Message {
	if in.silent() {
		return conversation.Message{}
	}
	return conversation.User(in.Text)
}

// Turn carries one input of the user to the agent's answer. It runs while its events are
// read, once for each time. The user's message is stored before the first event, and the
// turn before the last (LP-13, C-19): when that is seen, the session takes the next turn
// (C-37). Kinds that begin with event.Internal are left out (LP-24).
//
// The last event is always exactly one event.TurnResult, and an error of the turn follows it:
// of mode user_invalid_input for an input that is not valid, else that of the agent or the
// store. What the agent said up to an error is kept, and the next turn may try again (LP-17):
// with Continue, without saying it again.
//
// A turn that is refused has that one event, and no error follows: its Reason is
// event.Failed, its ErrorType session_busy or session_closed, and Result.Failure says more
// (LP-7). So it is while another turn runs, here or elsewhere, and when the session is not
// started.
//
// Who stops reading cancels the turn.
func (s *Session) Turn(ctx context.Context, in Input) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		if err := in.check(); err != nil {
			s.refuse(yield, err, err)
			return
		}
		stop, ask := context.WithCancel(context.WithoutCancel(ctx))
		defer ask()
		if err := s.claim("agent.Turn", ask); err != nil {
			s.refuse(yield, err, nil)
			return
		}
		r := &reading{s: s, yield: yield}
		defer r.close()
		r.run(ctx, in, Invocation{Stop: stop, MaxIterations: in.MaxIterations})
	}
}

// Execute is Turn for who wants the result: events go to emit, but for the last; nil: they go
// nowhere. Why a turn was refused is an error here. An error of emit cancels the turn and is
// returned as it is.
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

// refuse tells of a turn that does not begin.
func (s *Session) refuse(yield func(event.Event, error) bool, why, follows error) {
	if yield(s.result(rand.Text(), 1, event.TurnResult{Turn: s.Info().Turns + 1}, why), nil) && follows != nil {
		yield(event.Event{}, follows)
	}
}

// result is the last event of a turn that failed without one from the agent.
func (s *Session) result(turn string, sequence int, done event.TurnResult, why error) event.Event {
	done.Reason, done.ErrorType = event.Failed, string(failure.ModeOf(why))
	if failure.Is(why, failure.UserCancelled, failure.AgentTimeout) {
		done.Reason = event.Interrupted
	}
	done.Result = execution.Result{Agent: s.agent.Name(), Failure: asFailure(why), Usage: done.Result.Usage}
	return event.Event{Invocation: turn, Sequence: sequence, Time: time.Now(), Author: s.agent.Name(), Payload: done}
}

// asFailure is an error as it is kept.
func asFailure(err error) *failure.Error {
	if e, ok := errors.AsType[*failure.Error](err); ok {
		return e
	}
	return failure.New(failure.ModeOf(err), "agent.Turn", "the turn failed; the log of the agent has the cause").Because(err)
}
