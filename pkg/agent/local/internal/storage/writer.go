package storage

import (
	"context"
	"encoding/json"

	"github.com/troupe-dev/troupe/internal/hookstore"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Writer stores a turn whose lease this process holds.
type Writer struct {
	Turn         *Turn
	Lease        memory.Lease
	LastSequence int64           // sequence of the last message of the session
	Warnings     []event.Warning // what the user should know about how the turn was stored

	store     memory.Store
	agent     string
	committed bool // its messages are stored
}

// NewWriter returns the Writer of a turn of the named agent that has begun.
func (s *Session) NewWriter(t *Turn, begun memory.BeginResult, agent string) *Writer {
	return &Writer{
		Turn: t, Lease: memory.Lease{Ref: s.Ref, TurnID: t.ID, Epoch: begun.Turn.Epoch}, LastSequence: begun.Turn.Sequence,
		store: s.Store, agent: agent, committed: len(begun.Turn.Steps) > 0,
	}
}

// Write stores the turn and closes it. It returns the turn as stored. If the turn was closed before, its outcome
// may differ from t's. After an error the turn is still open: call Write again, also after Turn.MarkFailed.
func (w *Writer) Write(ctx context.Context) (session.Turn, error) {
	t := w.Turn
	if !t.HasAnswer() {
		if !w.committed && len(t.Messages)+len(t.RoundMessages) > 0 { // a closed turn without its messages is better than an open one
			_ = w.commit(ctx)
		}
		return w.closeFailed(ctx)
	}
	if err := w.commit(ctx); err != nil {
		return session.Turn{}, err
	}
	return session.Turn{ID: t.ID, Number: t.Number, Outcome: t.Outcome, Steps: []execution.Result{t.Result}, Sequence: w.LastSequence}, nil
}

// commit stores the messages and the rounds, and the answer if the turn has one.
func (w *Writer) commit(ctx context.Context) error {
	t := w.Turn
	c := memory.Commit{
		Ref: w.Lease.Ref, TurnID: w.Lease.TurnID, Epoch: w.Lease.Epoch, Base: w.LastSequence, Messages: t.Messages, Rounds: t.RoundMessages,
		Result: execution.Result{Agent: w.agent},
	}
	if t.HasAnswer() {
		c.State, c.Expected, c.Result, c.Outcome = t.State, t.Expected, t.Result, t.Outcome
	}
	c.Result.Step = 1
	var state map[string]json.RawMessage
	last, err := CallWithRetry(ctx, func(ctx context.Context) (last int64, err error) {
		last, state, err = hookstore.CommitStep(ctx, w.store, c, t.Rebase, func(warning event.Warning) { w.Warnings = append(w.Warnings, warning) })
		return last, err
	})
	if err == nil {
		w.LastSequence, w.committed = last, true
		if t.HasAnswer() {
			t.State = state
		}
	}
	return err
}

// closeFailed closes a turn without an answer as failed.
func (w *Writer) closeFailed(ctx context.Context) (session.Turn, error) {
	turn, err := CallWithRetry(ctx, func(ctx context.Context) (session.Turn, error) {
		return w.store.FailTurn(ctx, memory.Fail{
			Ref: w.Lease.Ref, TurnID: w.Lease.TurnID, Epoch: w.Lease.Epoch, Outcome: w.Turn.Outcome, Failure: w.Turn.Failure,
		})
	})
	if err == nil {
		w.LastSequence = turn.Sequence
	}
	return turn, err
}
