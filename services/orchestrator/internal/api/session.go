package api

import (
	"context"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/wire"
)

// Sessions implements troupev1.SessionServiceServer: clients see their conversations here,
// because the memory service is not reachable from outside.
type Sessions struct {
	troupev1.UnimplementedSessionServiceServer
	Memory memory.Sessions
}

// GetSession implements troupev1.SessionServiceServer.
func (s *Sessions) GetSession(ctx context.Context, req *troupev1.GetSessionRequest) (*troupev1.GetSessionResponse, error) {
	found, err := s.Memory.GetSession(ctx, session.Ref{Tenant: Tenant, Session: req.GetSessionId()})
	if err != nil {
		return nil, err
	}
	return &troupev1.GetSessionResponse{Session: wire.SessionToProto(found)}, nil
}

// defaultMessages is the size of a page when the caller names none.
const defaultMessages = 100

// ListMessages implements troupev1.SessionServiceServer.
func (s *Sessions) ListMessages(ctx context.Context, req *troupev1.ListMessagesRequest) (*troupev1.ListMessagesResponse, error) {
	limit := int(req.GetPageSize())
	if limit == 0 {
		limit = defaultMessages
	}
	messages, err := s.Memory.LoadHistory(ctx, session.Ref{Tenant: Tenant, Session: req.GetSessionId()}, req.GetAfterSequence(), limit)
	if err != nil {
		return nil, err
	}
	return &troupev1.ListMessagesResponse{Messages: wire.MessagesToProto(messages)}, nil
}
