package inmem

import (
	"cmp"
	"context"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// LoadHistory implements memory.Sessions.
func (s *Store) LoadHistory(_ context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.get("memory.LoadHistory", ref)
	if err != nil {
		return nil, err
	}
	var page []conversation.Message
	for _, m := range c.messages() {
		if m.Sequence > after && len(page) < limit {
			page = append(page, m)
		}
	}
	return page[:conversation.Fit(slices.Values(page), memory.MaxWindowBytes)], nil
}

// CompactSession implements memory.Sessions.
func (s *Store) CompactSession(_ context.Context, compact memory.Compact) (conversation.Compaction, error) {
	const op = "memory.CompactSession"
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.get(op, compact.Ref)
	if err != nil {
		return conversation.Compaction{}, err
	}
	if c.OpenTurn != "" {
		return conversation.Compaction{}, busy(op, c)
	}
	messages, keep := c.messages(), cmp.Or(compact.Keep, memory.DefaultKeep)
	if t := s.turn(c, c.WaitingTurn); t != nil {
		keep = max(keep, since(messages, t.first))
	}
	done := conversation.Compact(messages, compact.Strategy, keep, compact.Summary, memory.MaxSummaryBytes)
	if done.Messages > 0 {
		c.log = slices.DeleteFunc(slices.Clone(c.log), func(m conversation.Message) bool { return m.Sequence <= done.Last })
		c.summary, c.Summarized = done.Summary, done.Last
		for _, t := range c.turns {
			if t.first <= done.Last {
				t.recorded = nil
			}
		}
	}
	return done, nil
}

// since is how many messages there are from the given one on.
func since(messages []conversation.Message, first int64) int {
	n := 0
	for _, m := range messages {
		if m.Sequence >= first {
			n++
		}
	}
	return n
}

// SearchMemory implements memory.Sessions.
func (s *Store) SearchMemory(_ context.Context, search memory.Search) ([]memory.Hit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	query := memory.NewQuery(search.Query)
	sessions := s.latest(search.Tenant, search.User)
	var hits []memory.Hit
	left := memory.MaxSearchedBytes
	for _, c := range sessions[:min(len(sessions), memory.MaxSearched)] {
		for _, m := range slices.Backward(c.log) {
			if left -= conversation.Size(m); left < 0 {
				break
			}
			if score := query.Score(m.Text); score > 0 {
				hits = append(hits, memory.Hit{Session: c.ID, Message: m, Score: score})
			}
		}
	}
	slices.SortStableFunc(hits, func(a, b memory.Hit) int { return cmp.Compare(b.Score, a.Score) })
	hits = hits[:min(len(hits), search.Limit)]
	return hits[:conversation.Fit(func(yield func(conversation.Message) bool) {
		for _, h := range hits {
			if !yield(h.Message) {
				return
			}
		}
	}, memory.MaxWindowBytes)], nil
}

// messages is all that a session has to tell, the summary first.
func (c *conversed) messages() []conversation.Message {
	var all []conversation.Message
	if c.Summarized > 0 {
		all = append(all, conversation.Message{Sequence: c.Summarized, Role: conversation.RoleSummary, Text: c.summary})
	}
	return append(all, c.log...)
}

// window is what a turn that began with the given message is given of the history.
func (c *conversed) window(first int64, limit int, tokens int64) []conversation.Message {
	all := slices.DeleteFunc(c.messages(), func(m conversation.Message) bool { return m.Sequence > first })
	fits := conversation.Fit(func(yield func(conversation.Message) bool) {
		for _, m := range slices.Backward(all) {
			if !yield(m) {
				return
			}
		}
	}, memory.MaxWindowBytes)
	return conversation.Window(all[len(all)-fits:], limit, tokens)
}
