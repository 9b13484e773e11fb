// Package memoryrpc reaches the MEMORY tier of a mesh by RPC: a memory.Store whose truth
// is in the memory service.
package memoryrpc

import (
	"context"

	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/wire"
)

var _ memory.Store = (*Store)(nil)

// Store calls a memory service. The tenant of a session.Ref is not sent: the service
// takes it from who is calling. Safe for concurrent use.
type Store struct {
	memory.Store // until all of it is here
	service      troupev1.MemoryServiceClient
}

// New returns a store over the connection, which stays the caller's. Every method may be
// repeated, so the connection may retry the MemoryService.
func New(conn grpc.ClientConnInterface) *Store {
	return &Store{service: troupev1.NewMemoryServiceClient(conn)}
}

// BeginTurn implements memory.Turns.
func (s *Store) BeginTurn(ctx context.Context, b memory.Begin) (memory.Begun, error) {
	r, err := s.service.BeginTurn(ctx, wire.BeginToProto(b))
	if err != nil {
		return memory.Begun{}, failure.FromStatus("memory.BeginTurn", err)
	}
	return wire.BegunFromProto(r), nil
}

// CommitStep implements memory.Turns.
func (s *Store) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	r, err := s.service.CommitStep(ctx, wire.CommitToProto(c))
	if err != nil {
		return 0, failure.FromStatus("memory.CommitStep", err)
	}
	return r.GetLastSequence(), nil
}

// FailTurn implements memory.Turns.
func (s *Store) FailTurn(ctx context.Context, f memory.Fail) (session.Turn, error) {
	r, err := s.service.FailTurn(ctx, wire.FailToProto(f))
	if err != nil {
		return session.Turn{}, failure.FromStatus("memory.FailTurn", err)
	}
	return wire.TurnFromProto(r.GetTurn()), nil
}

// GetSession implements memory.Sessions.
func (s *Store) GetSession(ctx context.Context, ref session.Ref) (session.Session, error) {
	r, err := s.service.GetSession(ctx, &troupev1.MemoryServiceGetSessionRequest{SessionId: ref.Session})
	if err != nil {
		return session.Session{}, failure.FromStatus("memory.GetSession", err)
	}
	return wire.SessionFromProto(r.GetSession()), nil
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
