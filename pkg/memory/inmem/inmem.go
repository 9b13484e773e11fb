// Package inmem is the MEMORY tier in RAM, for tests: the store that the others are
// compared with. It is simple rather than fast, and forgets everything with the process.
package inmem

import (
	"cmp"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

var _ memory.Store = (*Store)(nil)

// Config is what a store allows, and its clock.
type Config struct {
	// Clock tells the time, by which leases run out and things are forgotten; nil: time.Now.
	Clock func() time.Time
	// MaxMessages and MaxBytes of a session; 0 means session.MaxMessages, session.MaxBytes.
	MaxMessages, MaxBytes int64
	// Generation of the data: epochs are at least Generation · 2³².
	Generation int64
	// KeepJournals is how long the journal of a step is kept behind it, for Recording; 0: not at
	// all.
	KeepJournals time.Duration
}

// Store is the whole tier. It takes the bounds of package memory for granted, as every
// store does: the RPC edge checks them. Safe for concurrent use.
type Store struct {
	cfg Config

	mu       sync.Mutex // guards all below
	made     int64      // sessions so far
	sessions map[session.Ref]*conversed
	shared   map[owner]*scope
	shelves  map[owner]*shelf // of users
	configs  map[string]*configured
	leaving  map[owner]bool // users who are being erased
}

// conversed is all that belongs to a session.
type conversed struct {
	session.Session                        // Messages, Bytes and ArtifactBytes are counted when it is asked for
	made            int64                  // its place in the order of creation
	deleted         time.Time              // zero: it was not
	erased          memory.Erasure         // when it was
	epoch           int64                  //
	deadline        time.Time              // of the lease of the open turn
	log             []conversation.Message // what no summary stands for
	summary         string                 //
	source          string                 // of untrusted words that came into it; empty: none did
	turns           map[string]*turn
	state           *scope
	shelf
}

// turn is a turn and what is known of its steps.
type turn struct {
	session.Turn
	fingerprint string
	holder      string                // trace that began it, or took it over last
	first       int64                 // sequence of the last message when it began: the user's, if it has one
	source      string                // that the session remembered when it began
	closed      time.Time             // zero while it is open
	commits     map[int]memory.Commit // by step, without what the store adds
	journals    map[int][]execution.Entry
	kept        []execution.Entry // journal of its last step, as long as that waits
	recorded    map[int]recorded  // journals of steps that are over
	inherits    int               // step of the turn that it continues, with whose journal it began; 0: it continues none
}

// New returns an empty store.
func New(cfg Config) *Store {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	cfg.MaxMessages = cmp.Or(cfg.MaxMessages, session.MaxMessages)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, session.MaxBytes)
	return &Store{cfg: cfg, sessions: map[session.Ref]*conversed{}, shared: map[owner]*scope{}, shelves: map[owner]*shelf{}, configs: map[string]*configured{}, leaving: map[owner]bool{}}
}

// now is as fine as other stores have it.
func (s *Store) now() time.Time { return s.cfg.Clock().UTC().Truncate(time.Millisecond) }

// past reports whether a duration since the moment is over.
func (s *Store) past(since time.Time, d time.Duration) bool { return !s.now().Before(since.Add(d)) }

// find returns a session; nil when it is not known. Modes: session_deleted.
func (s *Store) find(op string, ref session.Ref) (*conversed, error) {
	c := s.sessions[ref]
	if c == nil || c.deleted.IsZero() {
		return c, nil
	}
	if s.past(c.deleted, memory.Retention) {
		delete(s.sessions, ref)
		return nil, nil
	}
	return nil, sessionDeleted(op, ref)
}

// get is find, for those who need the session. Modes: session_deleted, not_found.
func (s *Store) get(op string, ref session.Ref) (*conversed, error) {
	c, err := s.find(op, ref)
	if c == nil && err == nil {
		err = noSession(op, ref)
	}
	return c, err
}

// held returns the session and its turn to who holds it. Modes: session_deleted, not_found,
// fenced, turn_not_open.
func (s *Store) held(op string, h memory.Lease) (*conversed, *turn, error) {
	c, err := s.find(op, h.Ref)
	if err != nil {
		return nil, nil, err
	}
	t := s.turn(c, h.TurnID)
	switch {
	case t == nil:
		return nil, nil, unknownTurn(op, h.Ref, h.TurnID)
	case h.Epoch != c.epoch:
		return nil, nil, fenced(op, h, c.epoch)
	case t.Outcome != session.OutcomeOpen:
		return nil, nil, turnClosed(op, t)
	}
	return c, t, nil
}

// turn finds a turn of a session; nil when it is not known, or closed for so long that it
// is forgotten.
func (s *Store) turn(c *conversed, id string) *turn {
	if c == nil {
		return nil
	}
	t := c.turns[id]
	if t != nil && !t.closed.IsZero() && s.past(t.closed, memory.Retention) {
		delete(c.turns, id)
		return nil
	}
	return t
}

// create makes a session, which is not known before it is put among the others.
func (s *Store) create(ref session.Ref) *conversed {
	s.made++
	return &conversed{
		Session: session.Session{ID: ref.Session, State: session.Created, Created: s.now(), LastActivity: s.now(), Metadata: map[string]string{}},
		made:    s.made,
		turns:   map[string]*turn{},
		state:   newScope(),
		shelf:   newShelf(),
	}
}
