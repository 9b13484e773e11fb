// Package opening decides how a turn of a session begins: as a new turn, as one that continues with calls that wait, or
// as the turn that a process left open. It also closes the turns of processes that were lost.
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

// Opener begins the turns of one session. Only the holder of the session's claim uses it.
type Opener struct {
	storage *storage.Session
	status  *status.Status
	agent   string

	unclosedTurn *storage.Writer // of a turn of this process that could not be closed
	undelivered  string          // id of a turn whose end was not delivered here
}

// New returns the opener of a session of agent.
func New(s *storage.Session, st *status.Status, agent string) *Opener {
	return &Opener{storage: s, status: st, agent: agent}
}

// Request begins a turn.
type Request struct {
	Continue bool               // the user says nothing
	Answers  []execution.Answer // to calls that wait; the user says nothing then
	Actor    string             // in whose name the turn acts
}

func (r Request) isSilent() bool { return r.Continue || len(r.Answers) > 0 }

// Begin begins turn t in the store, or takes over the turn that was left open and makes t that one. The turn may
// be closed already, with an answer that was never delivered: then its status is memory.StatusClosed.
func (o *Opener) Begin(ctx context.Context, t *storage.Turn, r Request) (memory.BeginResult, error) {
	if r.Continue || o.isRepeated(r.Answers) {
		if begun, ok, err := o.resume(ctx, t); ok || err != nil {
			return begun, err
		}
	}
	if err := o.CloseUnclosed(ctx); err != nil {
		return memory.BeginResult{}, err
	}
	if err := o.Answer(ctx, t, r); err != nil {
		return memory.BeginResult{}, err
	}
	begun, err := o.storage.Begin(ctx, o.storage.Request(t))
	switch {
	case err == nil:
		o.undelivered, t.Number = "", begun.Turn.Number
		o.status.SetWaiting("", nil)
	case failure.Is(err, failure.SessionBusy):
		err = o.BusyElsewhere(ctx, err)
	case failure.Is(err, failure.TurnNotOpen):
		err = o.newNothingWaitsError(err)
	case storage.InDoubt(err):
		o.leaveInDoubt(t, err)
	}
	return begun, err
}

// leaveInDoubt remembers a turn that may have begun.
func (o *Opener) leaveInDoubt(t *storage.Turn, why error) {
	t.Fail(session.OutcomeCancelled, storage.AsFailure(why))
	o.unclosedTurn = &storage.Writer{Turn: t}
}

// LeaveOpen remembers a turn that could not be closed. The next turn continues it, or closes it first.
func (o *Opener) LeaveOpen(w *storage.Writer) { o.unclosedTurn = w }

// SetUndelivered remembers a turn whose end was not delivered here (empty when there is none).
func (o *Opener) SetUndelivered(turn string) { o.undelivered = turn }

// resume claims an open turn that no process works on: a turn of this process, or of a lost one. The agent repeats
// the turn, except for what is in its journal. A turn with an answer is returned as stored. It reports false if
// there is no such turn.
func (o *Opener) resume(ctx context.Context, t *storage.Turn) (memory.BeginResult, bool, error) {
	var b memory.Begin
	switch {
	case o.unclosedTurn != nil:
		b = o.storage.Request(o.unclosedTurn.Turn)
		b.LostEpoch = o.unclosedTurn.Lease.Epoch
	case o.undelivered != "":
		b = o.storage.Claim(o.undelivered, t.Trace)
	default:
		return memory.BeginResult{}, false, nil
	}
	begun, err := o.storage.Begin(ctx, b)
	if err != nil {
		if err = o.resumeFailed(ctx, b, err); err != nil {
			return begun, false, err
		}
	} else if begun.Status == memory.StatusOpen {
		return begun, false, o.Busy(b.TurnID, begun.LeaseLeft)
	}
	o.unclosedTurn, o.undelivered = nil, ""
	if begun.Status == memory.StatusClosed {
		o.recordEnd(begun.Turn)
		return begun, o.undelivered != "", nil
	}
	if begun.Status != memory.StatusBegun { // it is not one of a local session
		return begun, false, nil
	}
	if len(begun.Turn.Steps) > 0 { // it was lost while it was stored, and its journal is gone
		return begun, false, o.fail(ctx, begun)
	}
	t.ID, t.Trace, t.Number = b.TurnID, b.TraceID, begun.Turn.Number
	t.Continues, t.Answers = begun.Turn.Continues, begun.Turn.Answers
	o.status.SetWaiting("", nil)
	return begun, true, nil
}

// resumeFailed returns the error of a turn that could not be claimed, or nil if it no longer exists.
func (o *Opener) resumeFailed(ctx context.Context, b memory.Begin, err error) error {
	switch {
	case failure.Is(err, failure.SessionBusy):
		return o.BusyElsewhere(ctx, err)
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
	if w.Lease.Epoch == 0 { // it may not have begun
		begun, err := o.storage.Lookup(ctx, o.storage.Request(w.Turn))
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
		w = o.storage.Writer(w.Turn, begun, o.agent)
	}
	turn, err := w.Write(ctx)
	if err != nil && storage.InDoubt(err) {
		return err
	}
	o.unclosedTurn = nil
	if err == nil {
		o.recordEnd(turn)
	} else {
		o.status.AddStored(w.Turn.Number, w.Base)
	}
	return nil
}

// recordEnd records how a lost turn ended. If it has an answer, the answer must still be delivered.
func (o *Opener) recordEnd(turn session.Turn) {
	o.status.AddStored(turn.Number, turn.Sequence)
	o.status.SetWaiting(turn.ID, turn.Steps)
	if storage.IsAnswer(turn.Outcome) {
		o.undelivered = turn.ID
	}
	o.status.SetState(turn.Outcome.SessionState())
}

// BusyElsewhere explains a session_busy of the store: which turn another process works on, and for how long at most.
func (o *Opener) BusyElsewhere(ctx context.Context, busy error) error {
	turn := openTurn(busy)
	if turn == "" {
		return busy
	}
	o.undelivered = turn
	left, err := o.storage.LeaseLeft(ctx, turn)
	if err != nil {
		return busy
	}
	return o.Busy(turn, left)
}

// openTurn returns the id of the turn that a session_busy names (empty when it names none).
func openTurn(busy error) string {
	if e, ok := errors.AsType[*failure.Error](busy); ok {
		return e.Facts["turn_id"]
	}
	return ""
}

// Busy returns the error of a session whose turn another process works on.
func (o *Opener) Busy(turn string, left time.Duration) error {
	left = left.Round(time.Millisecond)
	id := o.storage.Ref.Session
	return failure.Newf(failure.SessionBusy, "local.Turn",
		"another process works on a turn of session %s; wait until it ends. If that process was lost, the session is free in %v", id, left).
		With("session_id", id).With("turn_id", turn).With("lease_left", left.String())
}

// WithoutOpenTurn makes a call that the store rejects while a turn is open. If the process of that turn was lost, the turn
// is given up first.
func WithoutOpenTurn[T any](ctx context.Context, o *Opener, call func(context.Context) (T, error)) (T, error) {
	out, err := storage.Call(ctx, call)
	if !failure.Is(err, failure.SessionBusy) {
		return out, err
	}
	if err := o.giveUp(ctx, err); err != nil {
		return out, err
	}
	return storage.Call(ctx, call)
}

// Update pauses, resumes or closes what is stored of the session.
func (o *Opener) Update(ctx context.Context, verb session.Verb) error {
	_, err := WithoutOpenTurn(ctx, o, o.storage.Update(verb))
	return err
}

// giveUp closes the turn that keeps the session busy, if its process was lost.
func (o *Opener) giveUp(ctx context.Context, busy error) error {
	turn := openTurn(busy)
	if turn == "" {
		return busy
	}
	begun, err := o.storage.Begin(ctx, o.storage.Claim(turn, storage.NewTrace()))
	switch {
	case failure.Is(err, failure.KeyReused):
		return busy // it was not begun by a local session
	case err != nil:
		return err
	case begun.Status == memory.StatusOpen:
		return o.Busy(begun.Turn.ID, begun.LeaseLeft)
	case begun.Status == memory.StatusClosed:
		return nil
	}
	o.undelivered = ""
	return o.fail(ctx, begun)
}

// fail closes a turn of a process that was lost.
func (o *Opener) fail(ctx context.Context, begun memory.BeginResult) error {
	turn, err := o.storage.Fail(ctx, begun)
	if err == nil {
		o.recordEnd(turn)
	}
	return err
}
