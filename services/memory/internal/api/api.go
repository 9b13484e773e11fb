// Package api serves the MEMORY tier as troupe.v1.MemoryService.
package api

import (
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Tenant owns every session. It is the one place to change when callers have identities.
const Tenant = "default"

// Server is the service over a store. Requests were validated before they reach it.
type Server struct {
	troupev1.UnimplementedMemoryServiceServer
	store memory.Store
}

// New returns the service over the store.
func New(store memory.Store) *Server { return &Server{store: store} }

func ref(sessionID string) session.Ref { return session.Ref{Tenant: Tenant, Session: sessionID} }

// holding is what every request has that writes in the name of a turn.
type holding interface {
	GetSessionId() string
	GetTurnId() string
	GetEpoch() int64
}

func hold(r holding) memory.Hold {
	return memory.Hold{Ref: ref(r.GetSessionId()), TurnID: r.GetTurnId(), Epoch: r.GetEpoch()}
}
