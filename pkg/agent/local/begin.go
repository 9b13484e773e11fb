package local

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/internal/hookstore"
	"github.com/troupe-dev/troupe/internal/recorder"
	"github.com/troupe-dev/troupe/internal/turnlease"
	"github.com/troupe-dev/troupe/pkg/agent/local/internal/storage"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// openTurn is a turn that has begun and whose agent may run.
type openTurn struct {
	record *storage.Turn
	step   execution.Step // what the agent gets
	store  hook.Store     // what the agent's handlers and tools get
	lease  *turnLease     // (nil with NoAutoSave, where no lease is held)
}

// turnLease is the lease that this process holds on a turn, with its renewal and the turn's journal.
type turnLease struct {
	writer      *storage.Writer
	journal     *recorder.Recorder      // journal of the turn's step (nil until load has opened it)
	endRun      context.CancelCauseFunc // ends the agent's run
	stopRenewal context.CancelFunc      // ends the renewal of the lease
	renewal     sync.WaitGroup
}

// begin begins a turn and returns it. If the answer of a stored turn was never delivered, it returns that turn
// instead, and nothing runs. end cancels the agent's run if the lease or the journal is lost.
func (t *turn) begin(ctx context.Context, end context.CancelCauseFunc, in Input) (*openTurn, *session.Turn, error) {
	s := t.session
	number := s.Info().Turns + 1
	b := &openTurn{
		record: &storage.Turn{
			ID: session.TurnID(s.storage.Ref, fmt.Sprintf("%d|%s", number, rand.Text())), Trace: storage.NewTrace(), Number: number, UserMessage: in.message(),
		},
		step: execution.Step{
			SessionID: s.cfg.ID, User: s.cfg.User, Number: 1, Attempt: 1, Agent: s.agent.Name(), Broker: s.agent.CredentialBroker(s.cfg.ID),
		},
	}
	if s.cfg.NoAutoSave {
		if err := t.beginUnsaved(ctx, b, in); err != nil {
			return nil, nil, err
		}
	} else if found, err := t.beginStored(ctx, end, b, in); found != nil || err != nil {
		return nil, found, err
	}
	record := b.record
	b.step.TurnID, b.step.TraceID, b.step.Turn = record.ID, record.Trace, record.Number
	return b, nil, nil
}

// beginUnsaved begins a turn that is only in RAM until the session is saved.
func (t *turn) beginUnsaved(ctx context.Context, b *openTurn, in Input) error {
	s := t.session
	if len(in.Answers) > 0 {
		return failure.New(failure.UserInvalidInput, "local.Turn",
			"Answers: a session with NoAutoSave has no journal to continue with; open it without").With("session_id", s.cfg.ID)
	}
	if err := s.opener.ApplyAnswers(ctx, b.record, in.request()); err != nil {
		return err
	}
	recent := s.recent.forTurn(b.record)
	b.step.History, b.step.Rounds = recent.Messages, recent.Rounds
	b.store = &bufferedStore{s: s, turn: b.record}
	return nil
}

// beginStored begins a turn in the store and starts to renew its lease. If the answer of a stored turn was never
// delivered, it returns that turn instead.
func (t *turn) beginStored(ctx context.Context, end context.CancelCauseFunc, b *openTurn, in Input) (*session.Turn, error) {
	s := t.session
	opened, err := s.opener.Begin(ctx, b.record, in.request())
	if err != nil {
		return nil, err
	}
	if opened.Status == memory.StatusClosed {
		return &opened.Turn, nil
	}
	b.lease = t.startLease(ctx, end, b.record, opened)
	if err = t.load(ctx, b, opened); err != nil {
		t.giveUp(b, err)
		return nil, failure.FromCause(ctx, err)
	}
	b.step.Attempt, b.step.Journal, b.step.History, b.step.Answers = opened.Turn.Attempt, b.lease.journal, opened.History, opened.Turn.Answers
	b.store = hookstore.WithEntries(hookstore.New(s.cfg.Store, b.lease.writer.Lease, s.cfg.User), s.entries.latest)
	return nil, nil
}

// startLease starts to renew the lease of a turn, until release is called.
func (t *turn) startLease(ctx context.Context, end context.CancelCauseFunc, record *storage.Turn, opened memory.BeginResult) *turnLease {
	s := t.session
	h := &turnLease{writer: s.storage.NewWriter(record, opened, s.agent.Name()), endRun: end}
	renewing, drop := context.WithCancel(context.WithoutCancel(ctx))
	h.stopRenewal = drop
	h.renewal.Go(func() { turnlease.Renew(renewing, s.cfg.Store, h.writer.Lease, s.cfg.Lease, end) })
	return h
}

// load opens the journal of a turn that has begun, and reads the tool rounds that the agent remembers.
func (t *turn) load(ctx context.Context, b *openTurn, opened memory.BeginResult) (err error) {
	s := t.session
	if b.lease.journal, err = recorder.New(ctx, b.lease.endRun, s.cfg.Store, b.lease.writer.Lease, 1, opened.Turn.Attempt > 1); err != nil {
		return err
	}
	if slices.Contains(opened.Agents, s.agent.Name()) && len(opened.History) > 0 {
		b.step.Rounds, err = s.storage.Rounds(ctx, s.agent.Name(), opened.History[0].Sequence)
	}
	return err
}

// giveUp ends the lease of a turn that has begun and cannot run. The next turn closes it as failed.
func (t *turn) giveUp(b *openTurn, err error) {
	b.lease.release()
	b.record.MarkFailed(session.OutcomeFailed, storage.FailureFromError(err))
	t.session.opener.SetUnclosed(b.lease.writer)
}

// release ends the agent's run, closes the journal and stops the renewal of the lease.
func (t *turnLease) release() {
	if t.journal != nil {
		t.journal.Close()
	}
	t.endRun(nil)
	if t.journal != nil {
		t.journal.Wait()
	}
	t.stopRenewal()
	t.renewal.Wait()
}

// store writes a finished turn and returns the resulting state of the session. It returns an error if the store
// rejected the agent's result.
func (t *turn) store(ctx context.Context) (session.State, error) {
	s, record := t.session, t.open.record
	if s.cfg.NoAutoSave {
		s.recent.add(record)
		s.status.AddUnsaved(record)
		return record.Outcome.SessionState(), nil
	}
	defer t.open.lease.release() // the journal is needed until the turn is stored
	w := t.open.lease.writer
	written, err := w.Write(ctx)
	rejected := err
	if err != nil && record.HasAnswer() && !storage.InDoubt(err) {
		record.MarkFailed(session.OutcomeFailed, storage.FailureFromError(err))
		written, err = w.Write(ctx)
	}
	switch {
	case err == nil:
		s.status.AddStored(record.Number, w.LastSequence)
		s.status.SetWaiting(record.ID, written.Steps)
		return written.Outcome.SessionState(), rejected
	case storage.InDoubt(err):
		if record.HasAnswer() {
			record.MarkFailed(session.OutcomeFailed, storage.FailureFromError(err))
		}
		s.opener.SetUnclosed(w)
	}
	return session.Failed, rejected
}
