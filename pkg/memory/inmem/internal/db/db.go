// Package db holds what all parts of the store share: the data of sessions and users, the lock that guards the
// data, and the errors of rejected calls.
//
// Each operation locks the DB once, from its first read to its last write, and is therefore atomic. The functions
// of this package expect that their caller holds the lock.
package db

import (
	"sync"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Config holds the clock and the limits of a store. All fields are set.
type Config struct {
	// Clock returns the time for leases and retention.
	Clock func() time.Time
	// MaxMessages and MaxBytes limit a session.
	MaxMessages, MaxBytes int64
	// LeastEpoch is the lowest epoch that a turn may get.
	LeastEpoch int64
	// KeepJournals is how long journals are kept after the commits of their steps (0 means that they are deleted).
	KeepJournals time.Duration
}

// DB holds the data of a store.
type DB struct {
	sync.Mutex // guards all fields below
	Config
	Sessions        map[session.Ref]*Session // includes deleted sessions until their retention ends
	Shared          map[Owner]*Scope         // the scopes app: and user:
	Artifacts       map[Owner]*ArtifactSet   // artifacts of users
	ErasingUsers    map[Owner]bool           // users whose erasure has begun; they get no new sessions
	sessionsCreated int64                    // number of sessions created so far
}

// New returns an empty DB.
func New(cfg Config) *DB {
	return &DB{
		Config:       cfg,
		Sessions:     map[session.Ref]*Session{},
		Shared:       map[Owner]*Scope{},
		Artifacts:    map[Owner]*ArtifactSet{},
		ErasingUsers: map[Owner]bool{},
	}
}

// Now returns the current time, truncated to the precision of the other stores.
func (d *DB) Now() time.Time { return d.Clock().UTC().Truncate(time.Millisecond) }

// HasElapsed reports whether at least d has passed since the given time.
func (d *DB) HasElapsed(since time.Time, duration time.Duration) bool {
	return !d.Now().Before(since.Add(duration))
}

// FindSession returns a session (nil if it does not exist). It removes a session that was deleted more than
// memory.Retention ago. Modes: session_deleted.
func (d *DB) FindSession(op string, ref session.Ref) (*Session, error) {
	c := d.Sessions[ref]
	if c == nil || c.DeletedAt.IsZero() {
		return c, nil
	}
	if d.HasElapsed(c.DeletedAt, memory.Retention) {
		delete(d.Sessions, ref)
		return nil, nil
	}
	return nil, NewSessionDeletedError(op, ref)
}

// GetSession returns a session that must exist. Modes: session_deleted, not_found.
func (d *DB) GetSession(op string, ref session.Ref) (*Session, error) {
	c, err := d.FindSession(op, ref)
	if c == nil && err == nil {
		err = NewSessionNotFoundError(op, ref)
	}
	return c, err
}

// FindTurn returns a turn of a session (nil if the session is nil or has no such turn). It removes a turn that was
// closed more than memory.Retention ago.
func (d *DB) FindTurn(c *Session, id string) *Turn {
	if c == nil {
		return nil
	}
	t := c.TurnsByID[id]
	if t != nil && !t.ClosedAt.IsZero() && d.HasElapsed(t.ClosedAt, memory.Retention) {
		delete(c.TurnsByID, id)
		return nil
	}
	return t
}

// FindTurnByLease returns the session and the turn of a valid lease. Modes: session_deleted, not_found, fenced,
// turn_not_open.
func (d *DB) FindTurnByLease(op string, lease memory.Lease) (*Session, *Turn, error) {
	c, err := d.FindSession(op, lease.Ref)
	if err != nil {
		return nil, nil, err
	}
	t := d.FindTurn(c, lease.TurnID)
	switch {
	case t == nil:
		return nil, nil, NewTurnNotFoundError(op, lease.Ref, lease.TurnID)
	case lease.Epoch != c.Epoch:
		return nil, nil, NewFencedError(op, lease, c.Epoch)
	case t.Outcome != session.OutcomeOpen:
		return nil, nil, NewTurnClosedError(op, t)
	}
	return c, t, nil
}

// NewSession returns a new session. The caller adds it to Sessions.
func (d *DB) NewSession(ref session.Ref) *Session {
	d.sessionsCreated++
	return &Session{
		Session: session.Session{
			ID: ref.Session, State: session.Created, Created: d.Now(), LastActivity: d.Now(), Metadata: map[string]string{},
		},
		Position:  d.sessionsCreated,
		TurnsByID: map[string]*Turn{},
		Rounds:    map[string][]conversation.Rounds{},
		Scope:     newScope(),
		Artifacts: newArtifactSet(),
	}
}

// NextPosition returns a position after the positions of all sessions.
func (d *DB) NextPosition() int64 { return d.sessionsCreated + 1 }
