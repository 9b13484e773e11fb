package sessions

import (
	"cmp"
	"context"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/index"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/messages"
)

// SearchMemory implements memory.Sessions. At any time it holds only one part of one session's log in memory.
func (s *Sessions) SearchMemory(ctx context.Context, q memory.Search) ([]memory.Hit, error) {
	const op = "memory.SearchMemory"
	if err := s.db.CheckHolder(ctx, op); err != nil {
		return nil, err
	}
	entries, err := s.index.ListEntries(ctx, op, db.IndexKey(q.Tenant, q.User), index.Start, memory.MaxSearched)
	if err != nil {
		return nil, err
	}
	query := memory.NewQuery(q.Query)
	var hits []memory.Hit
	left := memory.MaxSearchedBytes
	for _, e := range entries {
		err := messages.ScanSaved(ctx, s.db, op, session.Ref{Tenant: q.Tenant, Session: e.Session}, func(m conversation.Message) bool {
			if left -= conversation.Size(m); left < 0 {
				return false
			}
			if score := query.Score(m.Text); score > 0 {
				hits = append(hits, memory.Hit{Session: e.Session, Message: m, Score: score})
			}
			if len(hits) > 2*q.Limit {
				hits = bestHits(hits, q.Limit)
			}
			return true
		})
		if err != nil {
			return nil, err
		}
		if left <= 0 {
			break
		}
	}
	hits = bestHits(hits, q.Limit)
	return hits[:conversation.CountFitting(func(yield func(conversation.Message) bool) {
		for _, h := range hits {
			if !yield(h.Message) {
				return
			}
		}
	}, memory.MaxWindowBytes)], nil
}

// bestHits returns the hits with the highest scores. Hits with equal scores keep the order in which they were
// found.
func bestHits(hits []memory.Hit, limit int) []memory.Hit {
	slices.SortStableFunc(hits, func(a, b memory.Hit) int { return cmp.Compare(b.Score, a.Score) })
	return hits[:min(len(hits), limit)]
}
