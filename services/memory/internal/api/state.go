package api

import (
	"context"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// GetState implements troupev1.MemoryServiceServer.
func (s *Server) GetState(ctx context.Context, r *troupev1.MemoryServiceGetStateRequest) (*troupev1.MemoryServiceGetStateResponse, error) {
	seen, err := s.store.GetState(ctx, sessionRef(ctx, r.GetSessionId()))
	if err != nil {
		return nil, err
	}
	return memorywire.SnapshotToProto(seen), nil
}

// UpdateState implements troupev1.MemoryServiceServer.
func (s *Server) UpdateState(ctx context.Context, r *troupev1.UpdateStateRequest) (*troupev1.UpdateStateResponse, error) {
	if (r.GetTurnId() == "") != (r.GetEpoch() == 0) {
		return nil, failure.New(failure.UserInvalidInput, "memory.UpdateState", "epoch: turn_id and epoch go together; send both, or none").
			With("fields", "turn_id,epoch")
	}
	revision, err := s.store.UpdateState(ctx, memorywire.StateUpdateFromProto(tenantFromContext(ctx), r))
	if err != nil {
		return nil, err
	}
	return &troupev1.UpdateStateResponse{Revision: revision}, nil
}
