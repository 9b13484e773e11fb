// Package turncred makes and checks the credentials of turns: each says that the worker of one
// agent may act in one step of one turn of one session, for one tenant and user, under one epoch, until
// a time (guarantees S5, S6, S16). The orchestrator signs it with the key of its own certificate, whose chain
// goes along, so that whoever knows the CAs of the mesh can check it, and no other key has to be
// distributed or replaced.
//
// A credential is a JWT (RFC 7519) in a JWS (RFC 7515) with the header x5c. For those who carry it
// it is opaque.
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
	// MaxLife is how long one holds at most, whatever the deadline of its turn.
	MaxLife = 15 * time.Minute
	// Grace is for how long it holds behind the deadline of the turn: a commit may be on its way,
	// and clocks differ.
	Grace = time.Minute
	// maxBytes is the size of one. With a certificate of ECDSA and no intermediate it has 1.5 KiB.
	maxBytes = 8 << 10
	// leeway is how far the clock of the signer may be ahead.
	leeway = time.Minute
)

// Turn is what a credential is for.
type Turn struct {
	Agent   string // whose worker may show it
	Tenant  string
	Session string
	ID      string // of the turn
	User    string // whose session it is; empty: nobody's
	Trace   string
	Epoch   int64 // of the turn; 0 in a replay
	Step    int   // number of the step that the agent was given: it writes for no other
	// Replay is set for a step that is only run again: it reads, and writes nothing.
	Replay bool

	// Of the turns that the worker may ask for below this one (guarantees S17).
	Root   string        // trace with which their run began
	Level  int           // how deep this one lies below the turn that nobody's agent asked for
	Budget budget.Limits // of the step: none of theirs has more
}

// Owns reports whether a turn may touch a session: its own, or one in which an agent works for it.
func (t Turn) Owns(session string) bool {
	return session == t.Session || strings.HasPrefix(session, turnctx.ChildSessionPrefix(t.Session))
}

// Authority makes and checks credentials with the identity of a process. Safe for concurrent use.
// Nil is that of a process without an identity: it makes none, and checks none.
type Authority struct {
	self  *identity.Source
	known verified
}

// New returns the authority of a process; nil without an identity.
func New(self *identity.Source) *Authority {
	if self == nil {
		return nil
	}
	return &Authority{self: self, known: verified{all: map[[sha256.Size]byte]expiring{}}}
}
