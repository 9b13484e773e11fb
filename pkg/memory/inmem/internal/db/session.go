package db

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Session holds all data of a session.
type Session struct {
	session.Session // without most of Size, which Snapshot counts, and without Pending

	Position        int64                  // place among all sessions in the order of creation, from 1
	DeletedAt       time.Time              // zero unless the session was deleted
	ErasureReport   memory.ErasureReport   // report of its deletion
	Epoch           int64                  // latest epoch of its turns
	LeaseEnd        time.Time              // end of the open turn's lease
	Log             []conversation.Message // messages after the summary, oldest first
	Summary         string                 // summary of the removed messages
	Saved           int64                  // sequence of the last saved message; only with NoAutoSave
	UntrustedSource string                 // gravest source of untrusted text in the session (empty means none)
	TurnsByID       map[string]*Turn
	Rounds          map[string][]conversation.Rounds // histories of the agents, by name, in the order of the commits
	Scope           *Scope                           // state without a prefix
	Artifacts       *ArtifactSet
}

// NewestSessions returns the sessions of a user in a tenant, newest first (an empty user means all users).
func (d *DB) NewestSessions(tenant, user string) []*Session {
	var all []*Session
	for ref, c := range d.Sessions {
		if ref.Tenant == tenant && (user == "" || c.User == user) && c.DeletedAt.IsZero() {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *Session) int { return cmp.Compare(b.Position, a.Position) })
	return all
}

// Snapshot returns a copy of the session for callers, without the pending calls.
func (s *Session) Snapshot() session.Session {
	seen := s.Session
	seen.Metadata = maps.Clone(s.Metadata)
	seen.Size = session.Size{
		Messages: int64(len(s.Log)), Bytes: totalSize(s.Log), ArtifactBytes: s.Artifacts.TotalSize(), Summarized: s.Size.Summarized,
	}
	if s.Settings.NoAutoSave {
		seen.Size.Unsaved = s.LastSequence - s.Saved
	}
	return seen
}

// IsSaved reports whether a message belongs to the history that others may read.
func (s *Session) IsSaved(m conversation.Message) bool {
	return !s.Settings.NoAutoSave || m.Sequence <= s.Saved
}

// Removed returns how many of the session's messages are no longer stored.
func (s *Session) Removed() int64 { return s.LastSequence - int64(len(s.Log)) }

// Messages returns the summary, if the session has one, and the messages after it.
func (s *Session) Messages() []conversation.Message {
	var all []conversation.Message
	if s.Size.Summarized > 0 {
		all = append(all, conversation.Message{Sequence: s.Size.Summarized, Role: conversation.RoleSummary, Text: s.Summary})
	}
	return append(all, s.Log...)
}

// AgentsWithRounds returns the names of the agents that have a history.
func (s *Session) AgentsWithRounds() []string { return slices.Sorted(maps.Keys(s.Rounds)) }

// DropRounds removes the rounds that follow a message up to the given sequence.
func (s *Session) DropRounds(last int64) {
	for agent, steps := range s.Rounds {
		s.Rounds[agent] = slices.DeleteFunc(slices.Clone(steps), func(r conversation.Rounds) bool { return r.After <= last })
		if len(s.Rounds[agent]) == 0 {
			delete(s.Rounds, agent)
		}
	}
}

// MarkUntrusted records a source of untrusted text for the session. An empty source changes nothing.
func (s *Session) MarkUntrusted(source string) {
	s.UntrustedSource = conversation.MostRestrictiveSource(s.UntrustedSource, source)
}

// DropPendingCalls removes the pending calls, and the journals that were kept for their answers.
func (s *Session) DropPendingCalls() {
	if t := s.TurnsByID[s.WaitingTurn]; t != nil {
		t.WaitingJournals = nil
	}
	s.WaitingTurn = ""
}

// AppendMessages adds messages of a turn to its session.
func (d *DB) AppendMessages(c *Session, t *Turn, messages ...conversation.Message) {
	for _, m := range messages {
		c.LastSequence++
		m = m.WithoutData()
		m.Sequence, m.Turn, m.Time = c.LastSequence, t.Number, d.Now()
		c.Log = append(c.Log, m)
	}
	t.Sequence = c.LastSequence
}

// HasRoom reports whether the session has room for the messages.
func (d *DB) HasRoom(c *Session, messages ...conversation.Message) bool {
	return len(messages) == 0 || d.HasRoomWithRounds(c, nil, messages...)
}

// HasRoomWithRounds reports whether the session has room for the messages and for the rounds of a step.
func (d *DB) HasRoomWithRounds(c *Session, rounds []conversation.Message, messages ...conversation.Message) bool {
	bytes := totalSize(c.Log) + totalSize(messages) + totalSize(rounds)
	for _, steps := range c.Rounds {
		for _, r := range steps {
			bytes += totalSize(r.Messages)
		}
	}
	return len(messages)+len(rounds) == 0 || int64(len(c.Log)+len(messages)) <= d.MaxMessages && bytes <= d.MaxBytes
}

func totalSize(messages []conversation.Message) int64 {
	bytes := 0
	for _, m := range messages {
		bytes += conversation.Size(m)
	}
	return int64(bytes)
}
