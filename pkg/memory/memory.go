// Package memory is the contract of the MEMORY tier: sessions and their turns, the journals
// of running steps, scoped state and artifacts. The memory service implements it over
// Redis; workers and the orchestrator reach it by RPC; package memorytest is the suite that
// every implementation passes, inmem the one that the others are compared with.
//
// Every write is durable when it returns, is atomic, may be repeated, and is refused when
// its epoch is not the session's latest. Errors are failure.Errors; each method lists its
// modes. Beyond those, any method may fail with session_deleted for a session that was
// deleted, and with system_network or system_timeout, after which a write may have
// happened: repeat it. Implementations are safe for concurrent use.
package memory

import (
	"time"

	"github.com/troupe-dev/troupe/pkg/session"
)

// Limits of the calls (guarantees S9).
const (
	MaxWindow = 1000 // messages that one call returns
	// MaxWindowBytes of text is what one call returns, and at least one message: what a
	// step is given must fit into one message of the wire.
	MaxWindowBytes = 3 << 20
	MinLeaseTTL    = time.Second
	MaxLeaseTTL    = 15 * time.Minute
	MaxUser        = 128 // bytes of a user's id
	// Retention is how long a closed turn answers repeated requests, and a deleted session
	// keeps late writers out. It exceeds every time for which a client goes on trying.
	Retention = 7 * 24 * time.Hour
)

// Store is the whole tier.
type Store interface {
	Turns
	Journal
	Sessions
	State
	Artifacts
	Configs
}

// Lease is the proof that a caller holds a turn: the epoch that BeginTurn gave it.
type Lease struct {
	Ref    session.Ref
	TurnID string
	Epoch  int64
}
