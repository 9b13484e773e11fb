package sessions

import (
	"cmp"
	"context"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/db"
	"github.com/troupe-dev/troupe/pkg/session"
)

// LoadHistory implements memory.Sessions.
func (s *Sessions) LoadHistory(_ context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error) {
	s.db.Lock()
	defer s.db.Unlock()
	c, err := s.db.GetSession("memory.LoadHistory", ref)
	if err != nil {
		return nil, err
	}
	var page []conversation.Message
	for _, m := range c.Messages() {
		if m.Sequence > after && len(page) < limit && c.IsSaved(m) {
			page = append(page, m)
		}
	}
	return page[:conversation.CountFitting(slices.Values(page), memory.MaxWindowBytes)], nil
}

// CompactSession implements memory.Sessions. It keeps the messages of a turn with pending calls. It deletes the
// kept journals of turns whose first message it removes.
func (s *Sessions) CompactSession(_ context.Context, compact memory.Compact) (conversation.Compaction, error) {
	const op = "memory.CompactSession"
	s.db.Lock()
	defer s.db.Unlock()
	c, err := s.db.GetSession(op, compact.Ref)
	if err != nil {
		return conversation.Compaction{}, err
	}
	if c.OpenTurn != "" {
		return conversation.Compaction{}, db.NewSessionBusyError(op, c)
	}
	messages, keep := c.Messages(), cmp.Or(compact.Keep, memory.DefaultKeep)
	if t := s.db.FindTurn(c, c.WaitingTurn); t != nil {
		keep = max(keep, countMessagesFrom(messages, t.StartSequence))
	}
	if compact.UpTo > 0 {
		keep = max(keep, countMessagesFrom(messages, compact.UpTo+1))
	}
	done := conversation.Compact(messages, compact.Strategy, keep, compact.Summary, memory.MaxSummaryBytes)
	if done.Messages == 0 {
		return done, nil
	}
	c.Log = slices.DeleteFunc(slices.Clone(c.Log), func(m conversation.Message) bool { return m.Sequence <= done.Last })
	c.Summary, c.Size.Summarized, c.Saved = done.Summary, done.Last, c.LastSequence
	c.DropRounds(done.Last)
	for _, t := range c.TurnsByID {
		if t.StartSequence <= done.Last {
			t.Recordings = nil
		}
	}
	return done, nil
}

// countMessagesFrom counts the messages from the given sequence on.
func countMessagesFrom(messages []conversation.Message, first int64) int {
	n := 0
	for _, m := range messages {
		if m.Sequence >= first {
			n++
		}
	}
	return n
}

// SearchMemory implements memory.Sessions. It reads the newest session first, and each session from its latest
// message.
func (s *Sessions) SearchMemory(_ context.Context, search memory.Search) ([]memory.Hit, error) {
	s.db.Lock()
	defer s.db.Unlock()
	query := memory.NewQuery(search.Query)
	sessions := s.db.NewestSessions(search.Tenant, search.User)
	var hits []memory.Hit
	unread := memory.MaxSearchedBytes
	for _, c := range sessions[:min(len(sessions), memory.MaxSearched)] {
		for _, m := range slices.Backward(c.Log) {
			if !c.IsSaved(m) {
				continue
			}
			if unread -= conversation.Size(m); unread < 0 {
				break
			}
			if score := query.Score(m.Text); score > 0 {
				hits = append(hits, memory.Hit{Session: c.ID, Message: m, Score: score})
			}
		}
	}
	slices.SortStableFunc(hits, func(a, b memory.Hit) int { return cmp.Compare(b.Score, a.Score) })
	hits = hits[:min(len(hits), search.Limit)]
	return hits[:conversation.CountFitting(func(yield func(conversation.Message) bool) {
		for _, h := range hits {
			if !yield(h.Message) {
				return
			}
		}
	}, memory.MaxWindowBytes)], nil
}
