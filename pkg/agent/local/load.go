package local

import (
	"context"
	"io"
	"math"
	"time"

	"github.com/troupe-dev/troupe/internal/chatformat"
	"github.com/troupe-dev/troupe/pkg/agent/local/internal/storage"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Start loads the session. It does nothing if the session is started (LP-7a), and opens a closed session again
// (LP-9). Modes: as for Open.
func (s *Session) Start(ctx context.Context) error {
	s.operations.Lock()
	defer s.operations.Unlock()
	before, open := s.status.Start()
	if open {
		return nil
	}
	state := before
	err := s.agent.Start(ctx)
	if err == nil {
		state, err = s.load(ctx)
	}
	if err != nil {
		s.status.RecordStart(before, false)
		return err
	}
	s.status.RecordStart(state, true)
	return nil
}

// load reads the stored session and returns the state that this process starts with.
func (s *Session) load(ctx context.Context) (session.State, error) {
	info, err := s.loadInfo(ctx)
	if err != nil {
		return "", err
	}
	if info.User != s.cfg.User && (info.User != "" || info.Turns > 0) {
		return "", failure.Newf(failure.NotFound, "local.Open", "there is no session %s of this user", s.cfg.ID).With("session_id", s.cfg.ID)
	}
	if s.cfg.NoAutoSave {
		if err := s.loadRecent(ctx, info); err != nil {
			return "", err
		}
	}
	s.status.SetStored(info)
	s.opener.SetUndelivered(info.OpenTurn)
	return stateAfterLoad(ctx, s.storage, info)
}

// loadInfo reads the session without its messages. With autosave it creates a new session in the store, or resumes
// a paused one (LP-10a).
func (s *Session) loadInfo(ctx context.Context) (info session.Session, err error) {
	if s.cfg.NoAutoSave {
		info, err = s.storage.Get(ctx)
		if failure.Is(err, failure.NotFound) {
			info, err = session.Session{ID: s.cfg.ID, User: s.cfg.User, Created: time.Now()}, nil
		}
	} else {
		info, err = storage.CallWithRetry(ctx, s.storage.UpdateCall(session.Resume))
	}
	if err == nil && info.WaitingTurn != "" && info.Pending == nil { // not every response contains the pending calls
		return s.storage.Get(ctx)
	}
	return info, err
}

// loadRecent reads what the next turn of a session with NoAutoSave gets.
func (s *Session) loadRecent(ctx context.Context, info session.Session) (err error) {
	if s.recent.untrustedSource, err = s.storage.Untrusted(ctx, info); err != nil {
		return err
	}
	h, err := s.storage.LatestHistory(ctx, s.agent.Name(), info, s.cfg.Window)
	if err == nil {
		s.recent.set(h)
	}
	return err
}

// stateAfterLoad returns the state in which a loaded session starts.
func stateAfterLoad(ctx context.Context, from *storage.Session, info session.Session) (session.State, error) {
	switch {
	case info.WaitingTurn != "": // even if the session is paused
		return session.InputRequired, nil
	case info.State == session.Failed || info.State == session.InputRequired || info.State == session.AuthRequired:
		return info.State, nil
	case info.State == session.Busy:
		left, err := from.LeaseLeft(ctx, info.OpenTurn)
		if err == nil && left > 0 {
			return session.Busy, nil
		}
		return session.Ready, err
	}
	return session.Ready, nil
}

// Messages returns the latest messages of the conversation, oldest first (0 returns all, LP-4). The agent's own tool
// rounds stand where they happened, and do not count to latest. Messages includes turns that are not saved yet. One
// message of conversation.RoleSummary stands for the messages that a compaction removed. Messages of rounds, and unsaved
// messages, have no sequence and no time.
func (s *Session) Messages(ctx context.Context, latest int) ([]conversation.Message, error) {
	unsaved := s.status.Unsaved()
	info, err := s.storage.Get(ctx)
	if err != nil && !failure.Is(err, failure.NotFound) { // it may not be saved yet
		return nil, err
	}
	if latest <= 0 {
		latest = math.MaxInt
	}
	h, err := s.storage.WholeHistory(ctx, s.agent.Name(), info, latest)
	if err != nil {
		return nil, err
	}
	for _, t := range unsaved {
		h = h.WithTurn(t)
	}
	all := h.Merged(latest)
	for i := range all {
		if all[i].Time.IsZero() {
			all[i].Sequence = 0
		}
	}
	return all, nil
}

// ExportOpenAI writes the whole conversation as a JSON array of messages of OpenAI's Chat Completions API (CO-69). Every
// server with this API accepts them. The agent's instructions come first, as their author wrote them. docs/inspect.md says
// what becomes of files, summaries and calls that wait. Modes: those of a store that does not respond.
func (s *Session) ExportOpenAI(ctx context.Context, w io.Writer) error {
	messages, err := s.Messages(ctx, 0)
	if err != nil {
		return err
	}
	return chatformat.Write(w, chatformat.Export(s.agent.Instructions(), s.agent.Name(), messages))
}

// Artifacts returns all versions of the artifacts that turns made, by name and version, and the artifacts under
// user: of the user's other sessions. Unsaved artifacts come last (LP-22, AD-23).
func (s *Session) Artifacts(ctx context.Context) ([]memory.Artifact, error) {
	unsaved := s.status.Unsaved()
	all, err := storage.CallWithRetry(ctx, func(ctx context.Context) ([]memory.Artifact, error) {
		return s.cfg.Store.ListArtifacts(ctx, s.storage.Ref)
	})
	if err != nil && !failure.Is(err, failure.NotFound) {
		return nil, err
	}
	for _, t := range unsaved {
		for _, f := range t.Files {
			all = append(all, f.Artifact)
		}
	}
	return all, nil
}
