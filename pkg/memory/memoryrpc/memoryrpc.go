// Package memoryrpc reaches the MEMORY tier of a mesh by RPC: a memory.Store whose truth
// is in the memory service.
package memoryrpc

import (
	"google.golang.org/grpc"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

var (
	_ memory.Store   = (*Store)(nil)
	_ memory.Carrier = (*Store)(nil)
)

// Store calls a memory service. The tenant of a session.Ref is not sent: the service
// takes it from who is calling. Safe for concurrent use.
type Store struct {
	service troupev1.MemoryServiceClient
}

// New returns a store over the connection, which stays the caller's. Every method may be
// repeated, so the connection may retry the MemoryService.
func New(conn grpc.ClientConnInterface) *Store {
	return &Store{service: troupev1.NewMemoryServiceClient(conn)}
}
