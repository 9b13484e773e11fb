// Package api serves the MEMORY tier as troupe.v1.MemoryService.
package api

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/wire"
)

// tenant owns every session. It is the one place to change when callers have identities.
const tenant = "default"

// Server is the service over a store. Requests were validated before they reach it.
type Server struct {
	troupev1.UnimplementedMemoryServiceServer
	store memory.Store
}

// New returns the service over the store.
func New(store memory.Store) *Server { return &Server{store: store} }

// BeginTurn implements troupev1.MemoryServiceServer.
func (s *Server) BeginTurn(ctx context.Context, r *troupev1.BeginTurnRequest) (*troupev1.BeginTurnResponse, error) {
	b := wire.BeginFromProto(tenant, r)
	if err := bounded("memory.BeginTurn", "message", b.Message); err != nil {
		return nil, err
	}
	begun, err := s.store.BeginTurn(ctx, b)
	if err != nil {
		return nil, err
	}
	return wire.BegunToProto(begun), nil
}

// CommitStep implements troupev1.MemoryServiceServer.
func (s *Server) CommitStep(ctx context.Context, r *troupev1.CommitStepRequest) (*troupev1.CommitStepResponse, error) {
	c := wire.CommitFromProto(tenant, r)
	if err := bounded("memory.CommitStep", "messages", c.Messages...); err != nil {
		return nil, err
	}
	last, err := s.store.CommitStep(ctx, c)
	if err != nil {
		return nil, err
	}
	return &troupev1.CommitStepResponse{LastSequence: last}, nil
}

// FailTurn implements troupev1.MemoryServiceServer.
func (s *Server) FailTurn(ctx context.Context, r *troupev1.FailTurnRequest) (*troupev1.FailTurnResponse, error) {
	turn, err := s.store.FailTurn(ctx, wire.FailFromProto(tenant, r))
	if err != nil {
		return nil, err
	}
	return &troupev1.FailTurnResponse{Turn: wire.TurnToProto(turn)}, nil
}

// LoadHistory implements troupev1.MemoryServiceServer.
func (s *Server) LoadHistory(ctx context.Context, r *troupev1.LoadHistoryRequest) (*troupev1.LoadHistoryResponse, error) {
	messages, err := s.store.LoadHistory(ctx, ref(r.GetSessionId()), r.GetAfterSequence(), int(r.GetLimit()))
	if err != nil {
		return nil, err
	}
	return &troupev1.LoadHistoryResponse{Messages: wire.MessagesToProto(messages)}, nil
}

// GetSession implements troupev1.MemoryServiceServer.
func (s *Server) GetSession(ctx context.Context, r *troupev1.MemoryServiceGetSessionRequest) (*troupev1.MemoryServiceGetSessionResponse, error) {
	found, err := s.store.GetSession(ctx, ref(r.GetSessionId()))
	if err != nil {
		return nil, err
	}
	return &troupev1.MemoryServiceGetSessionResponse{Session: wire.SessionToProto(found)}, nil
}

func ref(sessionID string) session.Ref { return session.Ref{Tenant: tenant, Session: sessionID} }

// bounded checks what a rule in the .proto cannot say: the size of all parts together.
func bounded(op, field string, messages ...conversation.Message) error {
	for _, m := range messages {
		if len(m.Text) > conversation.MaxMessageBytes {
			return failure.Newf(failure.UserInvalidInput, op, "%s: a message of %d bytes is too long; send at most %d, in more messages",
				field, len(m.Text), conversation.MaxMessageBytes).With("fields", field)
		}
	}
	return nil
}
