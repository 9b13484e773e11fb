package memoryrpc

import (
	"context"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// GetSession implements memory.Sessions.
func (s *sessions) GetSession(ctx context.Context, ref session.Ref) (session.Session, error) {
	r, err := s.service.GetSession(rpc.WithTenant(ctx, ref.Tenant), &troupev1.MemoryServiceGetSessionRequest{SessionId: ref.Session})
	if err != nil {
		return session.Session{}, grpcfailure.FromStatus("memory.GetSession", err)
	}
	return memorywire.SessionFromProto(r.GetSession()), nil
}

// ListSessions implements memory.Sessions.
func (s *sessions) ListSessions(ctx context.Context, l memory.SessionFilter) ([]session.Session, string, error) {
	r, err := s.service.ListSessions(rpc.WithTenant(ctx, l.Tenant), &troupev1.MemoryServiceListSessionsRequest{
		UserId: l.User, PageSize: int32(l.Limit), PageToken: l.After,
	})
	if err != nil {
		return nil, "", grpcfailure.FromStatus("memory.ListSessions", err)
	}
	return memorywire.SessionsFromProto(r.GetSessions()), r.GetNextPageToken(), nil
}

// LoadHistory implements memory.Sessions.
func (s *sessions) LoadHistory(ctx context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error) {
	r, err := s.service.LoadHistory(rpc.WithTenant(ctx, ref.Tenant), &troupev1.LoadHistoryRequest{
		SessionId: ref.Session, AfterSequence: after, Limit: int32(limit),
	})
	if err != nil {
		return nil, grpcfailure.FromStatus("memory.LoadHistory", err)
	}
	return wire.MessagesFromProto(r.GetMessages()), nil
}

// UpdateSession implements memory.Sessions.
func (s *sessions) UpdateSession(ctx context.Context, u memory.SessionUpdate) (session.Session, error) {
	r, err := s.service.UpdateSession(rpc.WithTenant(ctx, u.Ref.Tenant), memorywire.SessionUpdateToProto(u))
	if err != nil {
		return session.Session{}, grpcfailure.FromStatus("memory.UpdateSession", err)
	}
	return memorywire.SessionFromProto(r.GetSession()), nil
}

// CompactSession implements memory.Sessions.
func (s *sessions) CompactSession(ctx context.Context, c memory.Compact) (conversation.Compaction, error) {
	r, err := s.service.CompactSession(rpc.WithTenant(ctx, c.Ref.Tenant), &troupev1.MemoryServiceCompactSessionRequest{
		SessionId: c.Ref.Session, Strategy: memorywire.StrategyToProto(c.Strategy), KeepRecent: int32(c.Keep), UpTo: c.UpTo,
		Summary: conversation.Truncate(c.Summary, memory.MaxSummaryBytes),
	})
	if err != nil {
		return conversation.Compaction{}, grpcfailure.FromStatus("memory.CompactSession", err)
	}
	return memorywire.CompactionFromProto(r.GetCompaction()), nil
}

// ClearSession implements memory.Sessions.
func (s *sessions) ClearSession(ctx context.Context, ref session.Ref) error {
	_, err := s.service.ClearSession(rpc.WithTenant(ctx, ref.Tenant), &troupev1.MemoryServiceClearSessionRequest{SessionId: ref.Session})
	if err != nil {
		return grpcfailure.FromStatus("memory.ClearSession", err)
	}
	return nil
}

// DeleteSession implements memory.Sessions.
func (s *sessions) DeleteSession(ctx context.Context, ref session.Ref) (memory.ErasureReport, error) {
	r, err := s.service.DeleteSession(rpc.WithTenant(ctx, ref.Tenant), &troupev1.MemoryServiceDeleteSessionRequest{SessionId: ref.Session})
	if err != nil {
		return memory.ErasureReport{}, grpcfailure.FromStatus("memory.DeleteSession", err)
	}
	return memorywire.ErasureFromProto(r.GetReceipt()), nil
}

// EraseUser implements memory.Sessions.
func (s *sessions) EraseUser(ctx context.Context, tenant, user string) (memory.UserErasure, error) {
	r, err := s.service.EraseUser(rpc.WithTenant(ctx, tenant), &troupev1.MemoryServiceEraseUserRequest{UserId: user})
	if err != nil {
		return memory.UserErasure{}, grpcfailure.FromStatus("memory.EraseUser", err)
	}
	return memory.UserErasure{Sessions: r.GetSessionIds(), Report: memorywire.ErasureFromProto(r.GetReceipt())}, nil
}

// SearchMemory implements memory.Sessions.
func (s *sessions) SearchMemory(ctx context.Context, q memory.Search) ([]memory.Hit, error) {
	r, err := s.service.SearchMemory(rpc.WithTenant(ctx, q.Tenant), &troupev1.SearchMemoryRequest{UserId: q.User, Query: q.Query, Limit: int32(q.Limit)})
	if err != nil {
		return nil, grpcfailure.FromStatus("memory.SearchMemory", err)
	}
	return memorywire.HitsFromProto(r.GetHits()), nil
}

// GetState implements memory.State.
func (s *state) GetState(ctx context.Context, ref session.Ref) (memory.Snapshot, error) {
	r, err := s.service.GetState(rpc.WithTenant(ctx, ref.Tenant), &troupev1.MemoryServiceGetStateRequest{SessionId: ref.Session})
	if err != nil {
		return memory.Snapshot{}, grpcfailure.FromStatus("memory.GetState", err)
	}
	return memorywire.SnapshotFromProto(r), nil
}

// UpdateState implements memory.State. It rejects a value that cannot be stored without calling the service.
func (s *state) UpdateState(ctx context.Context, u memory.StateUpdate) (int64, error) {
	if err := memory.CheckDelta("memory.UpdateState", u.Delta); err != nil {
		return 0, err
	}
	r, err := s.service.UpdateState(rpc.WithTenant(ctx, u.Ref.Tenant), memorywire.StateUpdateToProto(u))
	if err != nil {
		return 0, grpcfailure.FromStatus("memory.UpdateState", err)
	}
	return r.GetRevision(), nil
}
