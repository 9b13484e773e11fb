// Package sessions reads, lists, searches and updates sessions independently of their turns.
package sessions

import (
	"context"
	"maps"
	"strconv"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/db"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Sessions implements the methods of memory.Sessions that do not remove data. It is safe for concurrent use.
type Sessions struct{ db *db.DB }

// New returns a session store backed by d.
func New(d *db.DB) *Sessions { return &Sessions{d} }

// GetSession implements memory.Sessions.
func (s *Sessions) GetSession(_ context.Context, ref session.Ref) (session.Session, error) {
	s.db.Lock()
	defer s.db.Unlock()
	c, err := s.db.GetSession("memory.GetSession", ref)
	if err != nil {
		return session.Session{}, err
	}
	seen := c.Snapshot()
	seen.WaitingTurn = ""
	if t := s.db.FindTurn(c, c.WaitingTurn); t != nil {
		seen.WaitingTurn = t.ID
		for _, r := range t.Steps {
			seen.Pending = append(seen.Pending, r.Pending...)
		}
	}
	return seen, nil
}

// ListSessions implements memory.Sessions. The page token is the position of the last session on the previous
// page.
func (s *Sessions) ListSessions(_ context.Context, filter memory.SessionFilter) ([]session.Session, string, error) {
	const op = "memory.ListSessions"
	s.db.Lock()
	defer s.db.Unlock()
	before := s.db.NextPosition()
	if filter.After != "" {
		var err error
		if before, err = strconv.ParseInt(filter.After, 10, 64); err != nil {
			return nil, "", failure.Newf(failure.UserInvalidInput, op, "page_token %q was not returned by a list; begin without one", filter.After).
				Because(err)
		}
	}
	var page []session.Session
	for _, c := range s.db.NewestSessions(filter.Tenant, filter.User) {
		if c.Position >= before {
			continue
		}
		if len(page) == filter.Limit {
			return page, db.FormatDecimal(before), nil
		}
		page, before = append(page, c.Snapshot()), c.Position
	}
	return page, "", nil
}

// UpdateSession implements memory.Sessions.
func (s *Sessions) UpdateSession(_ context.Context, u memory.SessionUpdate) (session.Session, error) {
	const op = "memory.UpdateSession"
	if u.Settings != nil {
		if err := u.Settings.Check(op); err != nil {
			return session.Session{}, err
		}
	}
	s.db.Lock()
	defer s.db.Unlock()
	c, err := s.findOrCreateSession(op, u)
	if err != nil {
		return session.Session{}, err
	}
	if u.IfRevision != 0 && u.IfRevision != c.Revision {
		return session.Session{}, db.NewRevisionMismatchError(op, u.IfRevision, c.Revision)
	}
	state, ok := c.State.Apply(u.Verb)
	if !ok {
		return session.Session{}, db.NewSessionBusyError(op, c)
	}
	labels, err := mergeLabels(op, c, u.Metadata)
	if err != nil {
		return session.Session{}, err
	}
	s.db.Sessions[u.Ref] = c
	settings := c.Settings
	if u.Settings != nil {
		settings = *u.Settings
	}
	if !maps.Equal(labels, c.Metadata) || settings != c.Settings {
		c.Revision++
	}
	if !c.Settings.NoAutoSave || u.Verb == session.Pause || u.Verb == session.Close || u.Verb == session.Save {
		c.Saved = c.LastSequence
	}
	c.State, c.Metadata, c.Settings = state, labels, settings
	c.LastActivity = s.db.Now()
	return c.Snapshot(), nil
}

// findOrCreateSession returns the session of an update. It does not add a new session to the database. Modes:
// session_deleted, not_found.
func (s *Sessions) findOrCreateSession(op string, u memory.SessionUpdate) (*db.Session, error) {
	c, err := s.db.FindSession(op, u.Ref)
	switch {
	case err != nil:
		return nil, err
	case c == nil && !u.Create || c != nil && u.User != "" && u.User != c.User:
		return nil, db.NewSessionNotFoundError(op, u.Ref)
	case c != nil:
		return c, nil
	case s.db.ErasingUsers[db.Owner{Tenant: u.Ref.Tenant, User: u.User}]:
		return nil, db.NewSessionDeletedError(op, u.Ref)
	}
	c = s.db.NewSession(u.Ref)
	c.User = u.User
	return c, nil
}

// mergeLabels returns the labels of a session after a change. An empty value removes a label. Modes:
// resource_quota.
func mergeLabels(op string, c *db.Session, change map[string]string) (map[string]string, error) {
	after := map[string]string{}
	maps.Copy(after, c.Metadata)
	maps.Copy(after, change)
	maps.DeleteFunc(after, func(_, value string) bool { return value == "" })
	bytes := 0
	for name, value := range after {
		bytes += len(name) + len(value)
	}
	if (len(after) > memory.MaxSessionMetadata || bytes > memory.MaxSessionMetadataBytes) && !maps.Equal(after, c.Metadata) {
		return nil, failure.Newf(failure.ResourceQuota, op, "metadata: %d labels of %d bytes are too many; a session has at most %d of %d bytes",
			len(after), bytes, memory.MaxSessionMetadata, memory.MaxSessionMetadataBytes).With("session_id", c.ID)
	}
	return after, nil
}
