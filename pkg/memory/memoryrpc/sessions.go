package memoryrpc

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/wire"
)

// GetSession implements memory.Sessions.
func (s *Store) GetSession(ctx context.Context, ref session.Ref) (session.Session, error) {
	r, err := s.service.GetSession(ctx, &troupev1.MemoryServiceGetSessionRequest{SessionId: ref.Session})
	if err != nil {
		return session.Session{}, failure.FromStatus("memory.GetSession", err)
	}
	return wire.SessionFromProto(r.GetSession()), nil
}

// ListSessions implements memory.Sessions.
func (s *Store) ListSessions(ctx context.Context, l memory.List) ([]session.Session, string, error) {
	r, err := s.service.ListSessions(ctx, &troupev1.MemoryServiceListSessionsRequest{
		UserId: l.User, PageSize: int32(l.Limit), PageToken: l.After,
	})
	if err != nil {
		return nil, "", failure.FromStatus("memory.ListSessions", err)
	}
	return wire.SessionsFromProto(r.GetSessions()), r.GetNextPageToken(), nil
}

// LoadHistory implements memory.Sessions.
func (s *Store) LoadHistory(ctx context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error) {
	r, err := s.service.LoadHistory(ctx, &troupev1.LoadHistoryRequest{
		SessionId: ref.Session, AfterSequence: after, Limit: int32(limit),
	})
	if err != nil {
		return nil, failure.FromStatus("memory.LoadHistory", err)
	}
	return wire.MessagesFromProto(r.GetMessages()), nil
}

// UpdateSession implements memory.Sessions.
func (s *Store) UpdateSession(ctx context.Context, u memory.Update) (session.Session, error) {
	r, err := s.service.UpdateSession(ctx, wire.UpdateToProto(u))
	if err != nil {
		return session.Session{}, failure.FromStatus("memory.UpdateSession", err)
	}
	return wire.SessionFromProto(r.GetSession()), nil
}

// CompactSession implements memory.Sessions.
func (s *Store) CompactSession(ctx context.Context, c memory.Compact) (conversation.Compaction, error) {
	r, err := s.service.CompactSession(ctx, &troupev1.MemoryServiceCompactSessionRequest{
		SessionId: c.Ref.Session, Strategy: wire.StrategyToProto(c.Strategy), KeepRecent: int32(c.Keep),
		Summary: conversation.Cut(c.Summary, memory.MaxSummaryBytes),
	})
	if err != nil {
		return conversation.Compaction{}, failure.FromStatus("memory.CompactSession", err)
	}
	return wire.CompactionFromProto(r.GetCompaction()), nil
}

// ClearSession implements memory.Sessions.
func (s *Store) ClearSession(ctx context.Context, ref session.Ref) error {
	_, err := s.service.ClearSession(ctx, &troupev1.MemoryServiceClearSessionRequest{SessionId: ref.Session})
	if err != nil {
		return failure.FromStatus("memory.ClearSession", err)
	}
	return nil
}

// DeleteSession implements memory.Sessions.
func (s *Store) DeleteSession(ctx context.Context, ref session.Ref) error {
	_, err := s.service.DeleteSession(ctx, &troupev1.MemoryServiceDeleteSessionRequest{SessionId: ref.Session})
	if err != nil {
		return failure.FromStatus("memory.DeleteSession", err)
	}
	return nil
}

// SearchMemory implements memory.Sessions.
func (s *Store) SearchMemory(ctx context.Context, q memory.Search) ([]memory.Hit, error) {
	r, err := s.service.SearchMemory(ctx, &troupev1.SearchMemoryRequest{UserId: q.User, Query: q.Query, Limit: int32(q.Limit)})
	if err != nil {
		return nil, failure.FromStatus("memory.SearchMemory", err)
	}
	return wire.HitsFromProto(r.GetHits()), nil
}

// GetState implements memory.State.
func (s *Store) GetState(ctx context.Context, ref session.Ref) (memory.Snapshot, error) {
	r, err := s.service.GetState(ctx, &troupev1.MemoryServiceGetStateRequest{SessionId: ref.Session})
	if err != nil {
		return memory.Snapshot{}, failure.FromStatus("memory.GetState", err)
	}
	return wire.SnapshotFromProto(r.GetValues(), r.GetRevisions()), nil
}

// UpdateState implements memory.State. What cannot be stored is not sent.
func (s *Store) UpdateState(ctx context.Context, u memory.StateUpdate) (int64, error) {
	if err := memory.CheckDelta("memory.UpdateState", u.Delta); err != nil {
		return 0, err
	}
	r, err := s.service.UpdateState(ctx, wire.StateUpdateToProto(u))
	if err != nil {
		return 0, failure.FromStatus("memory.UpdateState", err)
	}
	return r.GetRevision(), nil
}
