// Package memory is the contract of the MEMORY tier: sessions and their turns. The memory
// service implements it over Redis; workers and the orchestrator reach it by RPC; package
// memorytest is the suite that every implementation passes.
//
// Every write is durable when it returns, is atomic, may be repeated, and is refused when
// its epoch is not the session's latest. Errors are failure.Errors; each method lists its
// modes. Beyond those, any method may fail with system_network or system_timeout, after
// which a write may have happened: repeat it.
package memory

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Limits of the calls.
const (
	MaxWindow = 1000 // messages that one call returns
	// MaxWindowBytes of text is what one call returns, and at least one message: what a
	// step is given must fit into one message of the wire.
	MaxWindowBytes = 3 << 20
	MinLease       = time.Second
	MaxLease       = 15 * time.Minute
)

// Turns opens, feeds and closes turns. Implementations are safe for concurrent use.
type Turns interface {
	// BeginTurn opens a turn: it appends the user's message, mints the epoch and returns
	// the window of the history. A turn that is known is returned as it is (Open, Closed)
	// and nothing is written, unless its lease has run out while it was open: then it is
	// taken over (Begun) with a higher epoch and the next attempt. A turn of another id
	// whose lease has run out is failed first, and makes room. The holder's own call again,
	// known by its trace id, is answered as before: its first answer may have been lost.
	// With KnownOnly nothing is ever written.
	//
	// Modes: not_found when the turn is not known and KnownOnly is set; key_reused when the turn is known under another fingerprint; session_busy
	// while another turn is open under a lease, with its turn_id and trace_id as facts;
	// session_full.
	BeginTurn(ctx context.Context, b Begin) (Begun, error)
	// CommitStep makes the messages of one step visible and stores its result, all or
	// nothing; an outcome closes the turn in the same write. It returns the sequence of
	// the session's last message. The same commit again is fine and changes nothing.
	//
	// Modes: fenced; turn_not_open when the turn is closed or the step was committed with
	// another result; base_mismatch; session_full; not_found.
	CommitStep(ctx context.Context, c Commit) (int64, error)
	// FailTurn closes a turn without an answer and returns it. A turn that is closed
	// already stays as it is and is returned.
	//
	// Modes: fenced, not_found.
	FailTurn(ctx context.Context, f Fail) (session.Turn, error)
}

// Sessions reads conversations. Implementations are safe for concurrent use.
type Sessions interface {
	// GetSession returns what is known of a session. Modes: not_found.
	GetSession(ctx context.Context, ref session.Ref) (session.Session, error)
	// LoadHistory returns at most limit messages above the given sequence, oldest first,
	// and no more than MaxWindowBytes. None means that there are no more. Modes: not_found.
	LoadHistory(ctx context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error)
}

// Store is the whole tier.
type Store interface {
	Turns
	Sessions
}

// Begin asks for a turn.
type Begin struct {
	Ref         session.Ref
	TurnID      string
	TraceID     string
	Fingerprint string // a digest of what was asked; a turn id stands for one
	Message     conversation.Message
	Lease       time.Duration // MinLease to MaxLease, by the clock of the store
	Window      int           // how many of the latest messages to return, 1 to MaxWindow; at most MaxWindowBytes
	KnownOnly   bool          // find the turn, and neither open it nor take it over
}

// Found says what BeginTurn found.
type Found string

// What BeginTurn can find.
const (
	FoundBegun  Found = "begun"  // the turn is the caller's: new, or taken over
	FoundOpen   Found = "open"   // it is open under somebody's lease
	FoundClosed Found = "closed" // it was closed before
)

// Begun is the answer to Begin.
type Begun struct {
	Found     Found
	Turn      session.Turn
	History   []conversation.Message // the window, oldest first, the turn's own message last; only with FoundBegun
	LeaseLeft time.Duration          // of an open turn
}

// Commit is what one step adds to a session.
type Commit struct {
	Ref      session.Ref
	TurnID   string
	Epoch    int64
	Base     int64 // the last message of the session that the writer knows
	Messages []conversation.Message
	Result   execution.Result // its step number is the key of the commit
	Outcome  session.Outcome  // completed or input_required closes the turn
}

// Fail closes a turn without an answer.
type Fail struct {
	Ref     session.Ref
	TurnID  string
	Epoch   int64
	Outcome session.Outcome // failed or cancelled
	Failure *failure.Error
}
