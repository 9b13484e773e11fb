// Package memoryrpc reaches the MEMORY tier of a mesh by RPC: a memory.Store whose truth
// is in the memory service.
package memoryrpc

import (
	"context"

	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/transfer"
	"github.com/troupe-dev/troupe/internal/turnctx"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

var (
	_ memory.Store      = (*Store)(nil)
	_ transfer.Streamer = (*Store)(nil)
)

// Store calls a memory service. It says the tenant of a session.Ref beside the call, and not
// at all when it is empty; whether the service believes that depends on who is calling.
// A call that is made for a step (turnctx.WithCredential) shows the credential of the turn, too. Safe for
// concurrent use.
type Store struct {
	service troupev1.MemoryServiceClient
}

// New returns a store over the connection, which stays the caller's. Every method may be
// repeated, so the connection may retry the MemoryService.
func New(conn grpc.ClientConnInterface) *Store {
	return &Store{service: troupev1.NewMemoryServiceClient(inTurn{conn})}
}

// inTurn is a connection whose calls show the credential of the turn that they are made in.
type inTurn struct{ conn grpc.ClientConnInterface }

// Invoke implements grpc.ClientConnInterface.
func (c inTurn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.conn.Invoke(turnctx.Outgoing(ctx), method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (c inTurn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.conn.NewStream(turnctx.Outgoing(ctx), desc, method, opts...)
}
