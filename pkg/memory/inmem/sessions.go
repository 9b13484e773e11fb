package inmem

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// GetSession implements memory.Sessions.
func (s *Store) GetSession(_ context.Context, ref session.Ref) (session.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.get("memory.GetSession", ref)
	if err != nil {
		return session.Session{}, err
	}
	seen := c.seen()
	seen.WaitingTurn = ""
	if t := s.turn(c, c.WaitingTurn); t != nil {
		seen.WaitingTurn, seen.Pending = t.ID, t.waiting()
	}
	return seen, nil
}

// ListSessions implements memory.Sessions.
func (s *Store) ListSessions(_ context.Context, l memory.SessionFilter) ([]session.Session, string, error) {
	const op = "memory.ListSessions"
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.made + 1
	if l.After != "" {
		var err error
		if before, err = strconv.ParseInt(l.After, 10, 64); err != nil {
			return nil, "", failure.Newf(failure.UserInvalidInput, op, "page_token %q is not one of a page; begin without", l.After).Because(err)
		}
	}
	var page []session.Session
	for _, c := range s.latest(l.Tenant, l.User) {
		if c.made >= before {
			continue
		}
		if len(page) == l.Limit {
			return page, decimal(before), nil
		}
		page, before = append(page, c.seen()), c.made
	}
	return page, "", nil
}

// latest are the sessions of a user, or with none of all, those made last first.
func (s *Store) latest(tenant, user string) []*conversed {
	var all []*conversed
	for ref, c := range s.sessions {
		if ref.Tenant == tenant && (user == "" || c.User == user) && c.deleted.IsZero() {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *conversed) int { return cmp.Compare(b.made, a.made) })
	return all
}

// UpdateSession implements memory.Sessions.
func (s *Store) UpdateSession(_ context.Context, u memory.SessionUpdate) (session.Session, error) {
	const op = "memory.UpdateSession"
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.find(op, u.Ref)
	if err != nil {
		return session.Session{}, err
	}
	if c == nil && !u.Create || c != nil && u.User != "" && u.User != c.User {
		return session.Session{}, noSession(op, u.Ref)
	}
	if c == nil && s.leaving[owner{u.Ref.Tenant, u.User}] {
		return session.Session{}, sessionDeleted(op, u.Ref)
	}
	if c == nil {
		c = s.create(u.Ref)
		c.User = u.User
	}
	if u.IfRevision != 0 && u.IfRevision != c.Revision {
		return session.Session{}, anotherRevision(op, u.IfRevision, c.Revision)
	}
	state, ok := c.State.After(u.Verb)
	if !ok {
		return session.Session{}, busy(op, c)
	}
	labels := relabelled(c.Metadata, u.Metadata)
	changed := !maps.Equal(labels, c.Metadata)
	if changed && (len(labels) > memory.MaxMetadata || labelBytes(labels) > memory.MaxMetadataBytes) {
		return session.Session{}, failure.Newf(failure.ResourceQuota, op, "metadata: %d labels of %d bytes are too many; a session has at most %d of %d bytes",
			len(labels), labelBytes(labels), memory.MaxMetadata, memory.MaxMetadataBytes).With("session_id", u.Ref.Session)
	}
	s.sessions[u.Ref] = c
	c.State, c.Metadata = state, labels
	if changed {
		c.Revision++
	}
	c.LastActivity = s.now()
	return c.seen(), nil
}

// relabelled are labels after a change; an empty value removes one.
func relabelled(labels, change map[string]string) map[string]string {
	after := map[string]string{}
	maps.Copy(after, labels)
	maps.Copy(after, change)
	maps.DeleteFunc(after, func(_, value string) bool { return value == "" })
	return after
}

func labelBytes(labels map[string]string) int {
	bytes := 0
	for name, value := range labels {
		bytes += len(name) + len(value)
	}
	return bytes
}

// ClearSession implements memory.Sessions.
func (s *Store) ClearSession(_ context.Context, ref session.Ref) error {
	const op = "memory.ClearSession"
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.get(op, ref)
	if err != nil {
		return err
	}
	if c.OpenTurn != "" {
		return busy(op, c)
	}
	c.log, c.summary, c.Summarized, c.source = nil, "", 0, ""
	c.state.clear()
	for _, a := range c.artifacts {
		delete(c.contents, a.Content)
	}
	c.artifacts, c.versions = nil, map[string]int{}
	c.leave()
	for _, t := range c.turns {
		t.recorded = nil
	}
	c.LastActivity = s.now()
	return nil
}

// seen is the session as a caller may keep it.
func (c *conversed) seen() session.Session {
	seen := c.Session
	seen.Metadata = maps.Clone(c.Metadata)
	seen.Messages, seen.Bytes = int64(len(c.log)), size(c.log)
	seen.ArtifactBytes = c.bytes()
	return seen
}
