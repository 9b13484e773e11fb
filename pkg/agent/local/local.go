// Package local runs sessions with an agent in your own program, without a mesh.
package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local/internal/opening"
	"github.com/troupe-dev/troupe/pkg/agent/local/internal/status"
	"github.com/troupe-dev/troupe/pkg/agent/local/internal/storage"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Defaults of a Config.
const (
	DefaultMaxMessages = session.DefaultMaxMessages // messages stored before the session counts as too long (LP-2)
	DefaultWindow      = 50                         // latest messages that a turn gets (LP-20)
	DefaultLease       = 30 * time.Second           // how long a lost process keeps its turn
	DefaultTenant      = "default"
)

// Config describes a Session: which conversation it continues, and how it is stored.
type Config struct {
	Store memory.Store // stores the conversation (nil stores it in RAM, as long as the Session exists)

	ID     string // 1 to 64 of A-Z, a-z, 0-9, - and _ (empty makes a new one, LP-24)
	Tenant string // (empty means DefaultTenant)
	User   string // the owner (empty means none), fixed by the first Session with a User

	// NoAutoSave keeps turns in RAM until Save, Pause or Close stores them (LP-23). Other processes may write to
	// the conversation in the meantime. Their turns then come before the turns of this session. Tool calls cannot
	// wait for an answer in such a session.
	NoAutoSave bool
	// AutoCompact shortens the conversation to half of MaxMessages between turns, once it holds more than
	// MaxMessages. Without it, the session emits one warning (LP-21, C-20).
	AutoCompact    bool
	Strategy       conversation.Strategy // how AutoCompact shortens it (empty means conversation.Summarize)
	SummaryByModel bool                  // the agent's model writes the summary of AutoCompact, or a rule if the model fails (LP-26)

	MaxMessages int           // (0 means DefaultMaxMessages)
	Window      int           // how many of the latest messages the agent gets, 1 to memory.MaxWindow (0 means DefaultWindow)
	Lease       time.Duration // how long a lost process keeps its turn, memory.MinLeaseTTL to memory.MaxLeaseTTL (0 means DefaultLease)
}

// Session is a conversation with an agent, turn after turn, in a program of your own. It does what the mesh does for
// its clients. Its messages, state and artifacts are in a memory.Store. So another Session with the same ID, also in
// another process, continues where this one stopped (LP-10). The Agent keeps no state of a session, and may serve many sessions.
//
// Package session defines its states. A turn leads from ready to busy and back to ready. It leads to
// input_required when the agent asks a question or when tool calls wait for an answer (Pending). It leads to failed
// after an error, and a failed session takes the next turn as a ready one does (C-2). Pause sets the session aside, and
// the next turn resumes it. A closed session takes no turns until Start opens it again. If a process was lost during a turn,
// the session is busy until the lease of that turn has ended. Then it is ready (LP-10a).
//
// One operation runs at a time. While a turn runs, another turn is rejected with session_busy, and so are Pause, Close,
// Save, Clear and Compact. A Session is safe for concurrent use.
type Session struct {
	agent     *agent.Agent
	ownsAgent bool // New made it
	cfg       Config
	storage   *storage.Session
	status    *status.Status
	entries   *entryLog // of the turns so far

	operations sync.Mutex // serializes operations other than turns

	// Only the operation that holds the claim may use the fields below.
	opener *opening.Opener
	recent recentHistory
}

var sessionID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// New makes an agent and opens a session of its own with it, in RAM. So one call builds the agent, and Ask runs a turn
// (CO-73). Close closes the agent, too. Modes: those of agent.New and of Open.
func New(ctx context.Context, c agent.Config) (*Session, error) {
	a, err := agent.New(c)
	if err != nil {
		return nil, err
	}
	s, err := Open(ctx, a, Config{})
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	s.ownsAgent = true
	return s, nil
}

// Open starts a session of an agent. It loads what is stored of the session, and starts the agent if it is not started.
// It does not close the agent; the caller does. Modes: user_invalid_input for an invalid config, not_found for a
// conversation of another user, session_deleted, and system_network or system_timeout if the store does not respond.
// If the agent cannot be started, the error is the one of agent.Agent.Start.
func Open(ctx context.Context, a *agent.Agent, c Config) (*Session, error) {
	if c.ID == "" {
		c.ID = strings.ToLower(rand.Text())
	}
	if c.Store == nil {
		c.Store = inmem.New(inmem.Config{})
	}
	c.Tenant = cmp.Or(c.Tenant, DefaultTenant)
	c.MaxMessages = cmp.Or(c.MaxMessages, DefaultMaxMessages)
	c.Window = cmp.Or(c.Window, DefaultWindow)
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	if err := c.check(); err != nil {
		return nil, err
	}
	in := &storage.Session{
		Store: c.Store, Ref: session.Ref{Tenant: c.Tenant, Session: c.ID}, User: c.User, Lease: c.Lease, Window: c.Window,
	}
	st := status.New(c.ID)
	s := &Session{
		agent: a, cfg: c, storage: in, status: st, entries: &entryLog{}, opener: opening.New(in, st, a.Name()), recent: recentHistory{limit: c.Window},
	}
	return s, s.Start(ctx)
}

func (c Config) check() error {
	wrong := func(format string, args ...any) error {
		return failure.Newf(failure.UserInvalidInput, "local.Open", format, args...)
	}
	settings := c.settings().Check("local.Open")
	switch {
	case !sessionID.MatchString(c.ID):
		return wrong("ID %q: use 1 to 64 of A-Z, a-z, 0-9, - and _", c.ID)
	case len(c.User) > memory.MaxUserIDBytes:
		return wrong("User: %d bytes are too many; use at most %d", len(c.User), memory.MaxUserIDBytes)
	case c.MaxMessages < 2:
		return wrong("MaxMessages %d: use 2 or more", c.MaxMessages)
	case settings != nil:
		return settings
	case c.Window < 1 || c.Window > memory.MaxWindow:
		return wrong("Window %d: use 1 to %d", c.Window, memory.MaxWindow)
	case c.Lease < memory.MinLeaseTTL || c.Lease > memory.MaxLeaseTTL:
		return wrong("Lease %v: use %v to %v", c.Lease, memory.MinLeaseTTL, memory.MaxLeaseTTL)
	}
	return nil
}

// settings returns how the session is kept, in the form in which a mesh stores it.
func (c Config) settings() session.Settings {
	return session.Settings{
		MaxMessages: c.MaxMessages, NoAutoSave: c.NoAutoSave, AutoCompact: c.AutoCompact, Strategy: c.Strategy, SummaryByModel: c.SummaryByModel,
	}
}

// ID returns the id of the session. Clients of a mesh call it the context id.
func (s *Session) ID() string { return s.cfg.ID }

// State returns the state of the session as this process knows it. While Start loads the session it is "starting", which
// is never stored (LP-6).
func (s *Session) State() session.State { return s.status.State() }

// Info returns what this process knows of the conversation, such as the number of its turns and the time of its
// last activity (LP-5, LP-19). It includes unsaved turns.
func (s *Session) Info() session.Session { return s.status.Info() }

// Stop requests a stop of the running turn (CO-63). The turn ends with the reason stopped and with its text so
// far. Without a running turn Stop does nothing, and does not affect the next turn.
func (s *Session) Stop() { s.status.Stop() }

// Pending returns the tool calls that wait: for a person who approves them, or for the program that runs them (LP-16).
// They are stored, so they also wait while no process runs (LP-10a). A turn with Input.Answers continues with them. It
// returns what this process knows; answers are checked against what is stored.
func (s *Session) Pending() []execution.Pending { return s.Info().Pending }
