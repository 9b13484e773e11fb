package api

import (
	"context"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// GetSession implements troupev1.MemoryServiceServer.
func (s *Server) GetSession(ctx context.Context, r *troupev1.MemoryServiceGetSessionRequest) (*troupev1.MemoryServiceGetSessionResponse, error) {
	found, err := s.store.GetSession(ctx, sessionRef(ctx, r.GetSessionId()))
	if err != nil {
		return nil, err
	}
	return &troupev1.MemoryServiceGetSessionResponse{Session: memorywire.SessionToProto(found)}, nil
}

// ListSessions implements troupev1.MemoryServiceServer.
func (s *Server) ListSessions(ctx context.Context, r *troupev1.MemoryServiceListSessionsRequest) (*troupev1.MemoryServiceListSessionsResponse, error) {
	found, next, err := s.store.ListSessions(ctx, memory.SessionFilter{
		Tenant: tenantFromContext(ctx), User: r.GetUserId(), Limit: int(r.GetPageSize()), After: r.GetPageToken(),
	})
	if err != nil {
		return nil, err
	}
	return &troupev1.MemoryServiceListSessionsResponse{Sessions: memorywire.SessionsToProto(found), NextPageToken: next}, nil
}

// LoadHistory implements troupev1.MemoryServiceServer.
func (s *Server) LoadHistory(ctx context.Context, r *troupev1.LoadHistoryRequest) (*troupev1.LoadHistoryResponse, error) {
	messages, err := s.store.LoadHistory(ctx, sessionRef(ctx, r.GetSessionId()), r.GetAfterSequence(), int(r.GetLimit()))
	if err != nil {
		return nil, err
	}
	return &troupev1.LoadHistoryResponse{Messages: wire.MessagesToProto(messages)}, nil
}

// UpdateSession implements troupev1.MemoryServiceServer.
func (s *Server) UpdateSession(ctx context.Context, r *troupev1.UpdateSessionRequest) (*troupev1.UpdateSessionResponse, error) {
	updated, err := s.store.UpdateSession(ctx, memorywire.SessionUpdateFromProto(tenantFromContext(ctx), r))
	if err != nil {
		return nil, err
	}
	return &troupev1.UpdateSessionResponse{Session: memorywire.SessionToProto(updated)}, nil
}

// CompactSession implements troupev1.MemoryServiceServer.
func (s *Server) CompactSession(ctx context.Context, r *troupev1.MemoryServiceCompactSessionRequest) (*troupev1.MemoryServiceCompactSessionResponse, error) {
	done, err := s.store.CompactSession(ctx, memory.Compact{
		Ref: sessionRef(ctx, r.GetSessionId()), Strategy: memorywire.StrategyFromProto(r.GetStrategy()), Keep: int(r.GetKeepRecent()),
		Summary: r.GetSummary(), UpTo: r.GetUpTo(),
	})
	if err != nil {
		return nil, err
	}
	return &troupev1.MemoryServiceCompactSessionResponse{Compaction: memorywire.CompactionToProto(done)}, nil
}

// ClearSession implements troupev1.MemoryServiceServer.
func (s *Server) ClearSession(ctx context.Context, r *troupev1.MemoryServiceClearSessionRequest) (*troupev1.MemoryServiceClearSessionResponse, error) {
	if err := s.store.ClearSession(ctx, sessionRef(ctx, r.GetSessionId())); err != nil {
		return nil, err
	}
	return &troupev1.MemoryServiceClearSessionResponse{}, nil
}

// DeleteSession implements troupev1.MemoryServiceServer.
func (s *Server) DeleteSession(ctx context.Context, r *troupev1.MemoryServiceDeleteSessionRequest) (*troupev1.MemoryServiceDeleteSessionResponse, error) {
	erased, err := s.store.DeleteSession(ctx, sessionRef(ctx, r.GetSessionId()))
	if err != nil {
		return nil, err
	}
	return &troupev1.MemoryServiceDeleteSessionResponse{Receipt: memorywire.ErasureToProto(erased)}, nil
}

// EraseUser implements troupev1.MemoryServiceServer.
func (s *Server) EraseUser(ctx context.Context, r *troupev1.MemoryServiceEraseUserRequest) (*troupev1.MemoryServiceEraseUserResponse, error) {
	erased, err := s.store.EraseUser(ctx, tenantFromContext(ctx), r.GetUserId())
	if err != nil {
		return nil, err
	}
	answer := &troupev1.MemoryServiceEraseUserResponse{SessionIds: erased.Sessions}
	if len(erased.Sessions) == 0 {
		answer.Receipt = memorywire.ErasureToProto(erased.Report)
	}
	return answer, nil
}

// SearchMemory implements troupev1.MemoryServiceServer.
func (s *Server) SearchMemory(ctx context.Context, r *troupev1.SearchMemoryRequest) (*troupev1.SearchMemoryResponse, error) {
	hits, err := s.store.SearchMemory(ctx, memory.Search{Tenant: tenantFromContext(ctx), User: r.GetUserId(), Query: r.GetQuery(), Limit: int(r.GetLimit())})
	if err != nil {
		return nil, err
	}
	return &troupev1.SearchMemoryResponse{Hits: memorywire.HitsToProto(hits)}, nil
}
