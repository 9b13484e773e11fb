// Package memoryrpc implements memory.Store by calling the memory service over gRPC.
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

// Store is a client of the memory service. Each of its embedded types implements one interface of memory.Store. A
// call carries the tenant of its session.Ref as metadata, unless the tenant is empty. The service decides, by the
// caller, whether it accepts the tenant. A call for a step (turnctx.WithCredential) also carries the credential of
// the turn. Store is safe for concurrent use.
type Store struct {
	turns
	journal
	sessions
	state
	artifacts
	configs
}

// Each of these types implements one interface of memory.Store.
type (
	turns     struct{ service troupev1.MemoryServiceClient }
	journal   struct{ service troupev1.MemoryServiceClient }
	sessions  struct{ service troupev1.MemoryServiceClient }
	state     struct{ service troupev1.MemoryServiceClient }
	artifacts struct{ service troupev1.MemoryServiceClient }
	configs   struct{ service troupev1.MemoryServiceClient }
)

// New returns a store that calls the memory service over conn. The caller closes conn. Every method is idempotent,
// so conn may retry all calls of MemoryService.
func New(conn grpc.ClientConnInterface) *Store {
	service := troupev1.NewMemoryServiceClient(credentialConn{conn})
	return &Store{turns{service}, journal{service}, sessions{service}, state{service}, artifacts{service}, configs{service}}
}

// credentialConn is a connection that adds the turn credential in the context to each call.
type credentialConn struct{ conn grpc.ClientConnInterface }

// Invoke implements grpc.ClientConnInterface.
func (c credentialConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.conn.Invoke(turnctx.WithOutgoingCredential(ctx), method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (c credentialConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.conn.NewStream(turnctx.WithOutgoingCredential(ctx), desc, method, opts...)
}
