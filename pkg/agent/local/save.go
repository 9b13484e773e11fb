package local

import (
	"context"
	"sync"

	"github.com/troupe-dev/troupe/internal/hookstore"
	"github.com/troupe-dev/troupe/internal/turnlease"
	"github.com/troupe-dev/troupe/pkg/agent/local/internal/opening"
	"github.com/troupe-dev/troupe/pkg/agent/local/internal/storage"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Save stores the turns that are not stored yet, in order, if the session has NoAutoSave (LP-12). A turn that the store
// rejects is stored as a failed turn, and Save returns the reason. After any other error the remaining turns are not
// lost: call Save again. Modes: session_busy while a turn runs, here or elsewhere; session_closed; session_full;
// system_network or system_timeout if the store does not respond.
func (s *Session) Save(ctx context.Context) error {
	return s.runOperation("local.Save", func() (session.State, error) { return "", s.flush(ctx) })
}

// Pause saves the session and pauses it. The next turn resumes it, here or in another process (LP-9, C-4). The
// loaded data stays in RAM. Modes: as for Save.
func (s *Session) Pause(ctx context.Context) error {
	return s.runOperation("local.Pause", func() (session.State, error) {
		if err := s.flush(ctx); err != nil {
			return "", err
		}
		if s.status.StoredState() == session.Closed { // this process opened it without writing it
			if err := s.opener.Update(ctx, session.Resume); err != nil {
				return "", err
			}
		}
		return session.Paused, s.opener.Update(ctx, session.Pause)
	})
}

// Close saves the session and releases it. Start opens it again, here or elsewhere (LP-9). Closing a closed session does
// nothing. If the session cannot be saved it stays open: call Close again. Modes: as for Save, but it is no error when
// another process works on the session already. A session that New opened closes its agent, too.
func (s *Session) Close(ctx context.Context) error {
	if !s.status.IsOpen() {
		return nil
	}
	err := s.runOperation("local.Close", func() (session.State, error) {
		if err := s.flush(ctx); err != nil {
			return "", err
		}
		if err := s.opener.Update(ctx, session.Close); err != nil && !failure.Is(err, failure.SessionBusy) {
			return "", err
		}
		s.recent.History = storage.History{}
		s.opener.SetUndelivered("")
		s.status.RecordClose()
		return session.Closed, nil
	})
	if err == nil && s.ownsAgent {
		return s.agent.Close()
	}
	return err
}

// Clear removes the messages, the state and the artifacts at once, the unsaved ones too (LP-11). The session stays
// usable, and its turns keep their count: a conversation from turn 1 needs another ID (CO-19). Modes: as for Save.
func (s *Session) Clear(ctx context.Context) error {
	return s.runOperation("local.Clear", func() (session.State, error) {
		if err := s.opener.CloseUnclosed(ctx); err != nil {
			return "", err
		}
		_, err := opening.CallWithoutLostTurn(ctx, s.opener, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.cfg.Store.ClearSession(ctx, s.storage.Ref)
		})
		if err != nil && !failure.Is(err, failure.NotFound) { // the session may not be in the store yet
			return "", err
		}
		s.recent.History, s.recent.untrustedSource = storage.History{}, ""
		s.opener.SetUndelivered("")
		s.entries.clear()
		s.status.RecordClear()
		return "", nil
	})
}

// runOperation runs an operation other than a turn while it holds the claim of the session.
func (s *Session) runOperation(op string, do func() (session.State, error)) error {
	s.operations.Lock()
	defer s.operations.Unlock()
	if err := s.status.Claim(op, nil); err != nil {
		return err
	}
	var state session.State
	defer func() { s.status.Release(state) }()
	after, err := do()
	if err == nil {
		state = after
	}
	return err
}

// flush closes a turn that was left open and stores all unsaved turns.
func (s *Session) flush(ctx context.Context) error {
	if err := s.opener.CloseUnclosed(ctx); err != nil || !s.cfg.NoAutoSave {
		return err
	}
	verb := session.Verb("")
	if len(s.status.Unsaved()) > 0 {
		verb = session.Resume // a closed session accepts no turn, so resume it
	}
	if err := s.opener.Update(ctx, verb); err != nil {
		return err
	}
	var rejected error
	for unsaved := s.status.Unsaved(); len(unsaved) > 0; unsaved = s.status.Unsaved() {
		done, err := s.storeUnsaved(ctx, unsaved[0])
		if !done {
			return err
		}
		if rejected == nil {
			rejected = err
		}
		s.status.RemoveFirstUnsaved()
	}
	info, err := s.storage.Get(ctx)
	if err != nil {
		return err
	}
	s.status.SetStored(info)
	if s.cfg.AutoCompact && info.Size.Messages > int64(s.cfg.MaxMessages) {
		if err := autoCompact(ctx, s); err != nil {
			return err
		}
	}
	return rejected
}

// storeUnsaved stores one unsaved turn. It reports false if the turn is still unsaved.
func (s *Session) storeUnsaved(ctx context.Context, t *storage.Turn) (bool, error) {
	opened, err := s.storage.Begin(ctx, s.storage.BeginRequest(t))
	switch {
	case failure.Is(err, failure.SessionBusy):
		return false, s.opener.ExplainBusy(ctx, err)
	case err != nil:
		return false, err
	case opened.Status == memory.StatusClosed: // the turn was stored, but the response was lost
		return true, nil
	case opened.Status == memory.StatusOpen:
		return false, s.opener.NewBusyError(t.ID, opened.LeaseLeft)
	}
	w := s.storage.NewWriter(t, opened, s.agent.Name())
	if err = uploadArtifacts(ctx, s.storage, w); err == nil {
		if _, err = w.Write(ctx); err == nil {
			return true, nil
		}
	}
	if storage.InDoubt(err) || !t.HasAnswer() {
		return false, err
	}
	t.MarkFailed(session.OutcomeFailed, storage.FailureFromError(err))
	if _, again := w.Write(ctx); again != nil {
		return false, again
	}
	return true, err
}

// uploadArtifacts stores the artifacts of a turn. It renews the turn's lease meanwhile.
func uploadArtifacts(ctx context.Context, in *storage.Session, w *storage.Writer) error {
	if len(w.Turn.Files) == 0 {
		return nil
	}
	var renewing sync.WaitGroup
	defer renewing.Wait()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	renewing.Go(func() { turnlease.Renew(ctx, in.Store, w.Lease, in.Lease, end) })
	to := hookstore.New(in.Store, w.Lease, in.User)
	for _, f := range w.Turn.Files {
		if _, err := to.SaveArtifact(ctx, f.Name, f.MediaType, f.Bytes); err != nil {
			return failure.FromCause(ctx, err)
		}
	}
	return nil
}
