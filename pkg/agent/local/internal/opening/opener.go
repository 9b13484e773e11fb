// Package opening decides how a turn of a session begins. It is a new turn, a turn that continues pending calls,
// or a turn that a process left open. The package also closes the turns of lost processes.
package opening

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-dev/troupe/pkg/agent/local/internal/status"
	"github.com/troupe-dev/troupe/pkg/agent/local/internal/storage"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Opener begins the turns of one session. Only the operation that holds the session's claim may use it.
type Opener struct {
	storage *storage.Session
	status  *status.Status
	agent   string

	unclosedTurn *storage.Writer // writer of a turn that this process could not close
	undelivered  string          // id of a turn whose end this process has not delivered
}

// New returns the Opener of a session with the named agent.
func New(s *storage.Session, st *status.Status, agent string) *Opener {
	return &Opener{storage: s, status: st, agent: agent}
}

// Request says how a turn begins: with a text, with answers, or with neither.
type Request struct {
	Continue bool               // continue without text from the user
	Answers  []execution.Answer // answers to pending calls (without answers there may be a text)
	Actor    string             // the user on whose behalf the turn acts
}

func (r Request) isSilent() bool { return r.Continue || len(r.Answers) > 0 }

// Begin begins turn t in the store. If a turn was left open, Begin takes it over and copies its data to t. That
// turn may be closed already, with an answer that was never delivered. Then the status is memory.StatusClosed.
func (o *Opener) Begin(ctx context.Context, t *storage.Turn, r Request) (memory.BeginResult, error) {
	if r.Continue || o.isRepeated(r.Answers) {
		if begun, ok, err := o.resume(ctx, t); ok || err != nil {
			return begun, err
		}
	}
	if err := o.CloseUnclosed(ctx); err != nil {
		return memory.BeginResult{}, err
	}
	if err := o.ApplyAnswers(ctx, t, r); err != nil {
		return memory.BeginResult{}, err
	}
	begun, err := o.storage.Begin(ctx, o.storage.BeginRequest(t))
	switch {
	case err == nil:
		o.undelivered, t.Number = "", begun.Turn.Number
		o.status.SetWaiting("", nil)
	case failure.Is(err, failure.SessionBusy):
		err = o.ExplainBusy(ctx, err)
	case failure.Is(err, failure.TurnNotOpen):
		err = o.newNothingWaitsError(err)
	case storage.InDoubt(err):
		o.leaveInDoubt(t, err)
	}
	return begun, err
}

// leaveInDoubt remembers a turn that may or may not have begun. The next turn resolves it.
func (o *Opener) leaveInDoubt(t *storage.Turn, why error) {
	t.MarkFailed(session.OutcomeCancelled, storage.FailureFromError(why))
	o.unclosedTurn = &storage.Writer{Turn: t}
}

// SetUnclosed remembers a turn that could not be closed. The next turn continues it, or closes it first.
func (o *Opener) SetUnclosed(w *storage.Writer) { o.unclosedTurn = w }

// SetUndelivered remembers a turn whose end this process has not delivered (empty if there is none).
func (o *Opener) SetUndelivered(turn string) { o.undelivered = turn }

// resume claims an open turn of this process or of a lost one. The agent runs the turn again, without the calls
// that are in its journal. If the turn already has an answer, resume returns it as stored. It reports false if
// there is no such turn.
func (o *Opener) resume(ctx context.Context, t *storage.Turn) (memory.BeginResult, bool, error) {
	var b memory.Begin
	switch {
	case o.unclosedTurn != nil:
		b = o.storage.BeginRequest(o.unclosedTurn.Turn)
		b.LostEpoch = o.unclosedTurn.Lease.Epoch
	case o.undelivered != "":
		b = o.storage.ClaimRequest(o.undelivered, t.Trace)
	default:
		return memory.BeginResult{}, false, nil
	}
	begun, err := o.storage.Begin(ctx, b)
	if err != nil {
		if err = o.newResumeError(ctx, b, err); err != nil {
			return begun, false, err
		}
	} else if begun.Status == memory.StatusOpen {
		return begun, false, o.NewBusyError(b.TurnID, begun.LeaseLeft)
	}
	o.unclosedTurn, o.undelivered = nil, ""
	if begun.Status == memory.StatusClosed {
		o.recordEnd(begun.Turn)
		return begun, o.undelivered != "", nil
	}
	if begun.Status != memory.StatusBegun { // a local session did not begin it
		return begun, false, nil
	}
	if len(begun.Turn.Steps) > 0 { // its process was lost while storing it, and the journal is gone
		return begun, false, o.failLostTurn(ctx, begun)
	}
	t.ID, t.Trace, t.Number = b.TurnID, b.TraceID, begun.Turn.Number
	t.Continues, t.Answers = begun.Turn.Continues, begun.Turn.Answers
	o.status.SetWaiting("", nil)
	return begun, true, nil
}

// newResumeError returns the error for a turn that could not be claimed. It returns nil if the turn no longer
// exists.
func (o *Opener) newResumeError(ctx context.Context, b memory.Begin, err error) error {
	switch {
	case failure.Is(err, failure.SessionBusy):
		return o.ExplainBusy(ctx, err)
	case storage.InDoubt(err):
		o.leaveInDoubt(&storage.Turn{
			ID: b.TurnID, Trace: b.TraceID, UserMessage: b.Message, Continues: b.Predecessor.Continues,
			Answers: b.Predecessor.Answers,
		}, err)
		return err
	case failure.Is(err, failure.TurnNotOpen):
		o.unclosedTurn = nil
		return o.newNothingWaitsError(err)
	case failure.Is(err, failure.NotFound, failure.KeyReused):
		return nil
	}
	return err
}

// CloseUnclosed closes the turn that this process left open because the store did not respond.
func (o *Opener) CloseUnclosed(ctx context.Context) error {
	w := o.unclosedTurn
	if w == nil {
		return nil
	}
	if w.Lease.Epoch == 0 { // the turn may not have begun
		begun, err := o.storage.Lookup(ctx, o.storage.BeginRequest(w.Turn))
		if err != nil && !failure.Is(err, failure.NotFound, failure.SessionDeleted) {
			return err
		}
		if begun.Status != memory.StatusBegun {
			o.unclosedTurn = nil
			if begun.Status == memory.StatusOpen {
				o.undelivered = w.Turn.ID
			}
			if begun.Status == memory.StatusClosed {
				o.recordEnd(begun.Turn)
			}
			return nil
		}
		w = o.storage.NewWriter(w.Turn, begun, o.agent)
	}
	turn, err := w.Write(ctx)
	if err != nil && storage.InDoubt(err) {
		return err
	}
	o.unclosedTurn = nil
	if err == nil {
		o.recordEnd(turn)
	} else {
		o.status.AddStored(w.Turn.Number, w.LastSequence)
	}
	return nil
}

// recordEnd records how a lost turn ended. If it ended with an answer, the answer still has to be delivered.
func (o *Opener) recordEnd(turn session.Turn) {
	o.status.AddStored(turn.Number, turn.Sequence)
	o.status.SetWaiting(turn.ID, turn.Steps)
	if storage.IsAnswer(turn.Outcome) {
		o.undelivered = turn.ID
	}
	o.status.SetState(turn.Outcome.SessionState())
}

// ExplainBusy replaces a session_busy of the store by an error that says which turn another process works on, and
// how long its lease lasts at most.
func (o *Opener) ExplainBusy(ctx context.Context, busy error) error {
	turn := openTurnFromError(busy)
	if turn == "" {
		return busy
	}
	o.undelivered = turn
	left, err := o.storage.LeaseLeft(ctx, turn)
	if err != nil {
		return busy
	}
	return o.NewBusyError(turn, left)
}

// openTurnFromError returns the turn id in a session_busy error (empty if it has none).
func openTurnFromError(busy error) string {
	if e, ok := errors.AsType[*failure.Error](busy); ok {
		return e.Facts["turn_id"]
	}
	return ""
}

// NewBusyError returns the error for a session in which another process works on a turn.
func (o *Opener) NewBusyError(turn string, left time.Duration) error {
	left = left.Round(time.Millisecond)
	id := o.storage.Ref.Session
	return failure.Newf(failure.SessionBusy, "local.Turn",
		"another process works on a turn of session %s; wait until it ends. If that process was lost, the session is free in %v", id, left).
		With("session_id", id).With("turn_id", turn).With("lease_left", left.String())
}

// CallWithoutLostTurn makes a call that the store rejects while a turn is open. If the process of that turn was
// lost, it closes the turn and makes the call again.
func CallWithoutLostTurn[T any](ctx context.Context, o *Opener, call func(context.Context) (T, error)) (T, error) {
	out, err := storage.CallWithRetry(ctx, call)
	if !failure.Is(err, failure.SessionBusy) {
		return out, err
	}
	if err := o.closeLostTurn(ctx, err); err != nil {
		return out, err
	}
	return storage.CallWithRetry(ctx, call)
}

// Update applies the verb to the stored session: it pauses, resumes or closes it.
func (o *Opener) Update(ctx context.Context, verb session.Verb) error {
	_, err := CallWithoutLostTurn(ctx, o, o.storage.UpdateCall(verb))
	return err
}

// closeLostTurn closes the turn that keeps the session busy, if the process of that turn was lost. Otherwise it
// returns an error.
func (o *Opener) closeLostTurn(ctx context.Context, busy error) error {
	turn := openTurnFromError(busy)
	if turn == "" {
		return busy
	}
	begun, err := o.storage.Begin(ctx, o.storage.ClaimRequest(turn, storage.NewTrace()))
	switch {
	case failure.Is(err, failure.KeyReused):
		return busy // a local session did not begin it
	case err != nil:
		return err
	case begun.Status == memory.StatusOpen:
		return o.NewBusyError(begun.Turn.ID, begun.LeaseLeft)
	case begun.Status == memory.StatusClosed:
		return nil
	}
	o.undelivered = ""
	return o.failLostTurn(ctx, begun)
}

// failLostTurn closes a turn of a lost process as failed.
func (o *Opener) failLostTurn(ctx context.Context, begun memory.BeginResult) error {
	turn, err := o.storage.FailLostTurn(ctx, begun)
	if err == nil {
		o.recordEnd(turn)
	}
	return err
}
