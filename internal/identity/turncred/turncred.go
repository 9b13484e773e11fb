// Package turncred issues and verifies the credentials of turns. A credential allows the worker of one agent to
// act in one step of one turn until a given time. It is bound to the session, tenant, user and epoch of the turn
// (guarantees S5, S6, S16). The orchestrator signs it with the key of its certificate and includes the certificate
// chain. Every process that knows the CAs of the mesh can therefore verify it without any further key.
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
	// MaxLife is the longest validity of a credential, regardless of its turn's deadline.
	MaxLife = 15 * time.Minute
	// Grace is how long a credential remains valid after the deadline of its turn. It allows for late commits and
	// for clock differences.
	Grace = time.Minute
	// maxCredentialBytes is the size limit of a credential. A credential with an ECDSA certificate and no intermediate has
	// 1.5 KiB.
	maxCredentialBytes = 8 << 10
	// leeway is how far the signer's clock may be ahead.
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
	// Replay is true for a replayed step, which may read but not write.
	Replay bool

	// These fields limit the child turns that the worker may start (guarantee S17).
	Root   string        // root trace of the run
	Level  int           // depth below the root turn (0 for the root turn)
	Budget budget.Limits // budget of the step, which bounds each child turn
}

// MayAccess reports whether the turn may access a session. It may access its own session and the sessions that it
// opened for remote agents.
func (t Turn) MayAccess(session string) bool {
	return session == t.Session || strings.HasPrefix(session, turnctx.ChildSessionPrefix(t.Session))
}

// Authority issues and verifies credentials with the identity of a process. It is safe for concurrent use. A nil
// Authority stands for a process without an identity and does neither.
type Authority struct {
	self  *identity.Source
	cache verifiedCache
}

// New returns the authority of a process, or nil if the process has no identity.
func New(self *identity.Source) *Authority {
	if self == nil {
		return nil
	}
	return &Authority{self: self, cache: verifiedCache{turns: map[[sha256.Size]byte]cachedTurn{}}}
}
