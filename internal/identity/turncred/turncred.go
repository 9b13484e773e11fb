// Package turncred issues and verifies the credentials of turns. A credential allows the worker of one agent to
// act in one step of one turn of one session, for one tenant and user, under one epoch, until a time
// (guarantees S5, S6, S16). The orchestrator signs it with the key of its certificate and includes the
// certificate chain. So every process that knows the CAs of the mesh can verify it, and no further key has to
// be distributed.
//
// A credential is a JWT (RFC 7519) in a JWS (RFC 7515) with the header x5c. Workers treat it as opaque.
package turncred

import (
	"crypto/sha256"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/turnctx"
	"github.com/troupe-dev/troupe/pkg/budget"
)

// Limits of a credential.
const (
	// MaxLife is the longest validity of a credential, whatever the deadline of its turn.
	MaxLife = 15 * time.Minute
	// Grace is how long a credential is valid after the deadline of the turn, for late commits and clocks that
	// differ.
	Grace = time.Minute
	// maxBytes limits the size of a credential. With an ECDSA certificate and no intermediate it has 1.5 KiB.
	maxBytes = 8 << 10
	// leeway is how far the clock of the signer may be ahead.
	leeway = time.Minute
)

// Turn is the content of a credential.
type Turn struct {
	Agent   string // only its worker may use the credential
	Tenant  string
	Session string
	ID      string // turn id
	User    string // owner of the session (empty if it has none)
	Trace   string
	Epoch   int64 // epoch of the turn (0 in a replay)
	Step    int   // number of the agent's step; the worker may write for this step only
	// Replay is set for a step that is replayed. It may read but not write.
	Replay bool

	// Limits of the child turns that the worker may start (guarantees S17).
	Root   string        // root trace of the run
	Level  int           // depth below the root turn of the run (0 for the root turn)
	Budget budget.Limits // budget of the step, which bounds each child turn
}

// Owns reports whether the turn may touch a session: its own session, or a session that it opened for a remote
// agent.
func (t Turn) Owns(session string) bool {
	return session == t.Session || strings.HasPrefix(session, turnctx.ChildSessionPrefix(t.Session))
}

// Authority issues and verifies credentials with the identity of a process. It is safe for concurrent use. A
// nil Authority belongs to a process without an identity; it does neither.
type Authority struct {
	self  *identity.Source
	cache verifiedCache
}

// New returns the authority of a process, or nil if it has no identity.
func New(self *identity.Source) *Authority {
	if self == nil {
		return nil
	}
	return &Authority{self: self, cache: verifiedCache{turns: map[[sha256.Size]byte]cachedTurn{}}}
}
