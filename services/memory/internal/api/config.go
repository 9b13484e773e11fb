package api

import (
	"context"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// GetConfig implements troupev1.MemoryServiceServer.
func (s *Server) GetConfig(ctx context.Context, r *troupev1.GetConfigRequest) (*troupev1.GetConfigResponse, error) {
	c, err := s.store.GetConfig(ctx, r.GetAgent())
	if err != nil {
		return nil, err
	}
	return &troupev1.GetConfigResponse{Config: memorywire.ConfigToProto(c)}, nil
}

// PutConfig implements troupev1.MemoryServiceServer. A worker may change only the configuration of the agent that its
// certificate names (C-25).
func (s *Server) PutConfig(ctx context.Context, r *troupev1.PutConfigRequest) (*troupev1.PutConfigResponse, error) {
	caller := identity.PrincipalFromContext(ctx)
	if caller.Role != identity.Anybody && (caller.Role != identity.Worker || caller.Name != r.GetAgent()) {
		return nil, ownership.NewViolationError("memory.PutConfig", "config", ownership.Shared, caller.String())
	}
	c, err := s.store.PutConfig(ctx, memorywire.ConfigChangeFromProto(r))
	if err != nil {
		return nil, err
	}
	return &troupev1.PutConfigResponse{Config: memorywire.ConfigToProto(c)}, nil
}
