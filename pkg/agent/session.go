package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Defaults of a SessionConfig.
const (
	DefaultMaxMessages = 100              // stored, before something is done about it (LP-2)
	DefaultWindow      = 50               // loaded for a turn (LP-20)
	DefaultLease       = 30 * time.Second // of a turn
	DefaultTenant      = "default"
)

// Starting is the state of a Session while Start loads it. It is never stored (LP-6).
const Starting session.State = "starting"

// SessionConfig says which conversation a Session is, and how it is kept.
type SessionConfig struct {
	Store memory.Store // where it is kept

	ID     string // 1 to 64 of A-Z, a-z, 0-9, - and _; empty: a new one is made (LP-24)
	Tenant string // empty: DefaultTenant
	User   string // whose it is; empty: nobody's. The first that names one decides

	// NoAutoSave writes nothing until Save, Pause or Close (LP-23). Until then the turns are in
	// RAM alone, and nothing keeps others from the conversation: what they wrote meanwhile
	// comes before them. Calls of tools cannot wait for somebody then.
	NoAutoSave bool
	// AutoCompact makes the conversation shorter when it holds more than MaxMessages, between
	// turns only: half of them stay. Without it a warning says so, once (LP-21, C-20).
	AutoCompact bool

	MaxMessages int           // 0: DefaultMaxMessages
	Window      int           // how many of the latest messages the agent gets, 1 to memory.MaxWindow; 0: DefaultWindow
	Lease       time.Duration // how long a turn stays with a process that was lost, memory.MinLeaseTTL to memory.MaxLeaseTTL; 0: DefaultLease
}

// Session is a conversation with an agent, turn after turn, in a program of your own: what
// the mesh does for its clients, without one. Its messages, state and artifacts are in a
// memory.Store, and so another Session with the same ID, also in another process, goes on
// where this one stopped (LP-10). The Agent keeps nothing of it, and may serve many.
//
// Its states are those of package session. A turn leads from ready to busy and back, to
// input_required when the agent asks something or calls of tools wait for somebody (Pending),
// or to failed, which takes the next turn like ready does (C-2). Pause sets it aside, and the
// next turn resumes it; Close releases it until Start. After a turn of a process that was lost
// it is busy until the lease of that turn has run out, and ready then (LP-10a).
//
// One thing happens at a time. While a turn runs another one is refused, and so are Pause,
// Close, Save, Clear and Compact, with session_busy. Safe for concurrent use.
type Session struct {
	agent *Agent
	cfg   SessionConfig
	ref   session.Ref

	ops sync.Mutex // of those that claim it beside turns: they wait for each other

	mu      sync.Mutex // guards all below
	open    bool
	claimed bool
	state   session.State
	stop    context.CancelFunc // asks the running turn to stop; nil: none runs
	known   session.Session    // what is stored, as far as this process knows
	unsaved []*episode         // turns that are not stored yet, in order

	// Of who has the claim alone.
	window []conversation.Message // the latest messages, with NoAutoSave
	source string                 // of untrusted words that the store remembered at the load, with NoAutoSave
	left   *scribe                // of a turn that could not be closed
	lost   string                 // id of a turn whose end nobody was told here
}

var sessionID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Open starts a session of an agent: what there is of it is loaded, and the agent is started
// if it is not; closing the agent is for who made it. Modes: user_invalid_input for a config
// that is not valid, not_found for a conversation of another user, session_deleted, those of
// (*Agent).Start, and those of a store that does not answer.
func Open(ctx context.Context, a *Agent, c SessionConfig) (*Session, error) {
	if c.ID == "" {
		c.ID = strings.ToLower(rand.Text())
	}
	c.Tenant = cmp.Or(c.Tenant, DefaultTenant)
	c.MaxMessages = cmp.Or(c.MaxMessages, DefaultMaxMessages)
	c.Window = cmp.Or(c.Window, DefaultWindow)
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	if err := c.check(); err != nil {
		return nil, err
	}
	s := &Session{agent: a, cfg: c, ref: session.Ref{Tenant: c.Tenant, Session: c.ID}, state: session.Created}
	return s, s.Start(ctx)
}

func (c SessionConfig) check() error {
	wrong := func(format string, args ...any) error {
		return failure.Newf(failure.UserInvalidInput, "agent.Open", format, args...)
	}
	switch {
	case c.Store == nil:
		return wrong("Store is missing; inmem.New makes one that forgets with the process")
	case !sessionID.MatchString(c.ID):
		return wrong("ID %q: use 1 to 64 of A-Z, a-z, 0-9, - and _", c.ID)
	case len(c.User) > memory.MaxUser:
		return wrong("User: %d bytes are too many; use at most %d", len(c.User), memory.MaxUser)
	case c.MaxMessages < 2:
		return wrong("MaxMessages %d: use 2 or more", c.MaxMessages)
	case c.Window < 1 || c.Window > memory.MaxWindow:
		return wrong("Window %d: use 1 to %d", c.Window, memory.MaxWindow)
	case c.Lease < memory.MinLeaseTTL || c.Lease > memory.MaxLeaseTTL:
		return wrong("Lease %v: use %v to %v", c.Lease, memory.MinLeaseTTL, memory.MaxLeaseTTL)
	}
	return nil
}

// ID is that of the conversation: the context id.
func (s *Session) ID() string { return s.ref.Session }

// State says whether the session takes a turn, as this process knows it.
func (s *Session) State() session.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		return session.Busy
	}
	return s.state
}

// Info is what is known of the conversation: how many turns it had, when it was active last,
// and so on (LP-5, LP-19). Turns that are not saved yet count.
func (s *Session) Info() session.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	info := s.known
	info.State, info.Pending = s.state, slices.Clone(info.Pending)
	if s.stop != nil {
		info.State = session.Busy
	}
	return info
}

// Stop asks the turn that runs to stop (CO-63). It ends with the reason stopped and what was
// said so far. Without a turn it does nothing, and it is not remembered for the next.
func (s *Session) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.stop()
	}
}

// claim takes the session for one thing: a turn, which stop asks to stop, or with nil another.
// Modes: session_busy, session_closed.
func (s *Session) claim(op string, stop context.CancelFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.claimed:
		return failure.Newf(failure.SessionBusy, op, "session %s is at work; wait until its turn ends, or stop it", s.ref.Session).
			With("session_id", s.ref.Session)
	case !s.open:
		return failure.Newf(failure.SessionClosed, op, "session %s is closed; start it first", s.ref.Session).
			With("session_id", s.ref.Session)
	}
	s.claimed, s.stop = true, stop
	return nil
}

// release gives the session back in the given state; empty: in that in which it was.
func (s *Session) release(state session.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed, s.stop = false, nil
	s.state = cmp.Or(state, s.state)
}
