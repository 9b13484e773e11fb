// Package api serves the MEMORY tier as troupe.v1.MemoryService.
package api

import (
	"context"

	"github.com/troupe-dev/troupe/internal/identity"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Server implements troupev1.MemoryServiceServer with a store. The RPC server validates requests before they reach
// it.
type Server struct {
	unimplemented
	journals
	store memory.Store
}

// unimplemented answers calls of methods that a later version adds.
type unimplemented struct {
	troupev1.UnimplementedMemoryServiceServer
}

// journals serves the journals of steps and the histories of agents.
type journals struct{ store memory.Store }

// New returns a Server for the store.
func New(store memory.Store) *Server { return &Server{store: store, journals: journals{store}} }

// tenantFromContext returns the tenant whose sessions the call may access. It comes from the identity of the
// caller, not from the request.
func tenantFromContext(ctx context.Context) string { return identity.PrincipalFromContext(ctx).Tenant }

func sessionRef(ctx context.Context, sessionID string) session.Ref {
	return session.Ref{Tenant: tenantFromContext(ctx), Session: sessionID}
}

// turnRequest is implemented by requests that act on behalf of a turn.
type turnRequest interface {
	GetSessionId() string
	GetTurnId() string
	GetEpoch() int64
}

func leaseFromRequest(ctx context.Context, r turnRequest) memory.Lease {
	return memory.Lease{Ref: sessionRef(ctx, r.GetSessionId()), TurnID: r.GetTurnId(), Epoch: r.GetEpoch()}
}
