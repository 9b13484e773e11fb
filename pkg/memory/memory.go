// Package memory is the contract of the MEMORY tier: sessions and their turns, the journals of running steps,
// scoped state, artifacts, and the configurations of agents. The memory service implements it over Redis. Workers
// and the orchestrator reach it by RPC.
//
// To write a store, implement Store: one interface for each part of the contract. The Check functions are its
// rules for input. Test the store with package memorytest, and compare it with package inmem, the store in RAM.
//
// Every write is atomic, durable when it returns, and safe to repeat. A write of a turn is rejected unless its
// epoch is the session's latest. Errors are failure.Errors, and each method lists its modes. Any method may also
// fail with session_deleted for a deleted session, and with system_network or system_timeout. After system_network
// or system_timeout the write may have happened, so the caller should repeat it. Implementations are safe for
// concurrent use.
package memory

import (
	"time"

	"github.com/troupe-dev/troupe/pkg/session"
)

// Limits of a single call (guarantee S9).
const (
	MaxWindow = 1000 // messages that one call returns
	// MaxWindowBytes limits the text that one call returns. A call returns at least one message, even if it is
	// larger. The limit ensures that the input of a step fits into one gRPC message.
	MaxWindowBytes = 3 << 20
	MinLeaseTTL    = time.Second
	MaxLeaseTTL    = 15 * time.Minute
	MaxUserIDBytes = 128 // bytes of a user's id
	// Retention is how long a closed turn is kept to answer repeated requests, and how long a deleted session
	// rejects late writers. It is longer than any client retries.
	Retention = 7 * 24 * time.Hour
)

// Store is the complete contract of the MEMORY tier. Each embedded interface is one part of it.
type Store interface {
	Turns
	Journal
	Sessions
	State
	Artifacts
	Configs
}

// Lease proves that a caller holds a turn. BeginTurn returned its epoch.
type Lease struct {
	Ref    session.Ref
	TurnID string
	Epoch  int64
}
