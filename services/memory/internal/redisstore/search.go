package redisstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// SearchMemory implements memory.Sessions. It has one part of a log in memory at a time.
func (s *Store) SearchMemory(ctx context.Context, q memory.Search) ([]memory.Hit, error) {
	const op = "memory.SearchMemory"
	if err := s.holds(ctx, op); err != nil {
		return nil, err
	}
	entries, err := s.entries(ctx, op, indexKey(q.Tenant, q.User), latest, memory.MaxSearched)
	if err != nil {
		return nil, err
	}
	query := memory.NewQuery(q.Query)
	var hits []memory.Hit
	left := memory.MaxSearchedBytes
	for _, e := range entries {
		err := s.scan(ctx, op, session.Ref{Tenant: q.Tenant, Session: e.session}, false, func(m conversation.Message) bool {
			if left -= conversation.Size(m); left < 0 {
				return false
			}
			if score := query.Score(m.Text); score > 0 {
				hits = append(hits, memory.Hit{Session: e.session, Message: m, Score: score})
			}
			if len(hits) > 2*q.Limit {
				hits = best(hits, q.Limit)
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
	hits = best(hits, q.Limit)
	return hits[:conversation.Fit(func(yield func(conversation.Message) bool) {
		for _, h := range hits {
			if !yield(h.Message) {
				return
			}
		}
	}, memory.MaxWindowBytes)], nil
}

// holds says why the worker for whom a context calls holds its turn no more; nil for nobody in particular.
func (s *Store) holds(ctx context.Context, op string) error {
	h := memory.HolderOf(ctx)
	if h.Epoch == 0 {
		return nil
	}
	known, err := s.redis.HMGet(ctx, key(h.Ref, "meta"), standing...).Result()
	if err != nil {
		return s.redis.Fault(op, err)
	}
	meta := map[string]string{}
	for i, name := range standing {
		meta[name] = reply(known).text(i)
	}
	return readable(ctx, op, h.Ref, meta)
}

// best are the hits with the highest scores, and of equal ones those that were found first.
func best(hits []memory.Hit, limit int) []memory.Hit {
	slices.SortStableFunc(hits, func(a, b memory.Hit) int { return cmp.Compare(b.Score, a.Score) })
	return hits[:min(len(hits), limit)]
}
