package memory

import (
	"context"
	"encoding/json"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Turns begins, leases, commits and fails the turns of sessions.
type Turns interface {
	// BeginTurn opens a turn. It appends the user's message, mints the epoch, and returns the window of
	// the history. Files of the message become artifacts of the session in the same write, as with
	// PutArtifact, and the stored message names their versions (AD-25). A turn without a message
	// continues the session where the turn before it ended (LP-8).
	//
	// Which turn is found decides what happens:
	//   - A known turn is returned as it is (StatusOpen, StatusClosed), and nothing is written.
	//   - A known turn that is open and whose lease has expired is taken over (StatusBegun), with a higher
	//     epoch and the next attempt.
	//   - The holder's own call again, recognized by its trace id, gets the same answer as before. Its
	//     first answer may have been lost.
	//   - Another open turn whose lease expired longer ago than TakeoverGrace is failed first, as with
	//     FailTurn. Its partial message is kept if there is room for both that and the new message.
	//
	// With LookupOnly, nothing is ever written. With LostEpoch, the holder takes over its own turn at
	// once, if the turn still has that epoch. If it has a higher one, the turn was taken over already,
	// and the call is the holder's repeated call.
	//
	// A turn with Continues takes the place of one that ended with waiting calls. It gets that turn's
	// window, its steps except the last, the journal of the last, and the next attempt. The Answers are
	// stored with it. Any other new turn drops the waiting calls for good.
	//
	// A turn with Resumes takes the place of the session's last turn, which failed. It gets that turn's
	// window, the journals of the steps that are not Inherited, and the next attempt. Tools recognize
	// their calls by its Origin (OC-27). With Copy it is the first turn of its session, which begins
	// with the copied data, all or nothing. In both cases the Inherited steps count as committed.
	//
	// The window is what conversation.Window returns for the summary and the messages after it, as the
	// session held them when the turn began. It is the same after a takeover.
	//
	// A session remembers the gravest source of untrusted words that came into it: with turns, commits
	// and copies, and in journals of steps that failed. It does so even if no message carries the
	// source. The window is marked (conversation.MarkUntrusted) with what the session remembered when the turn
	// began, or when the turn began whose place it takes. Only ClearSession removes the memory (S14).
	//
	// Modes:
	//   - not_found: LookupOnly is set and the turn is unknown, or the session has another user
	//   - key_reused: the turn is known with another fingerprint, or the session of a Copy exists
	//   - session_busy: another turn is open, and its lease has not expired or is in its TakeoverGrace;
	//     turn_id and trace_id are facts
	//   - session_closed
	//   - turn_not_open: the continued turn does not wait (any more), or the resumed turn did not fail,
	//     is not the last, or is forgotten
	//   - session_full
	//   - resource_quota: the session would have too many artifacts
	//   - user_invalid_input: see CheckBegin
	BeginTurn(ctx context.Context, b Begin) (BeginResult, error)
	// RenewTurn extends the lease of a turn to ttl from now. Modes: fenced, turn_not_open, not_found.
	RenewTurn(ctx context.Context, h Lease, ttl time.Duration) error
	// ReleaseTurn ends the lease of a turn, and the turn stays open. The next BeginTurn takes it over, or fails it
	// so that another turn can begin. Modes: fenced, turn_not_open, not_found.
	ReleaseTurn(ctx context.Context, h Lease) error
	// CommitStep makes the messages of one step visible, applies its changes of state and stores its
	// result, all or nothing. An outcome closes the turn in the same write. It returns the sequence of
	// the session's last message. The same commit again succeeds and changes nothing.
	//
	// The journal of the step is deleted except for the entries that its Rounds name, unless the store keeps
	// journals (see Recording). If the result
	// has waiting calls, the journal is kept as long as the turn, for the turn that continues with their
	// answers. Only the last step may wait. In a turn that continues, the step that waited is committed
	// first.
	//
	// The Rounds of the step join the history of its agent, which LoadRounds returns. The entries of the journal
	// that they name stay as long as the session.
	//
	// Modes, checked in this order: state_violation and user_invalid_input by Commit.Check; not_found; fenced;
	// turn_not_open when the turn is closed or the step was committed with other content; base_mismatch with
	// last_sequence as a fact; user_invalid_input for rounds that name an entry which is not stored; session_full;
	// user_invalid_input for user: keys in a session without a user; resource_quota when a scope would hold too much
	// state. Concurrent commits to app: or user: may each pass this check and exceed the limit together. Changes
	// that make a scope smaller always pass.
	CommitStep(ctx context.Context, c Commit) (int64, error)
	// FailTurn closes a turn without an answer and returns it. If the session has room, what the running
	// step had said becomes one message that is marked partial (LP-17): PartialMessage of its journal.
	// The running step is the one after the last committed step. A closed turn stays as it is and is
	// returned. The journals of a failed turn are kept for the turn that resumes it; the journals of a
	// cancelled turn are not. Modes: fenced, not_found.
	FailTurn(ctx context.Context, f Fail) (session.Turn, error)
}

// Journal stores what happened inside steps: of a running one, so that a successor of the worker does not repeat it, and
// of committed ones, so that the agent remembers its tool calls.
type Journal interface {
	// Record stores entries of a step of an open turn, all or none. Entries that are stored already are
	// skipped. Number 0, the step's input, is replaced, because each attempt gets a new one. A step has
	// at most MaxJournalBytes.
	//
	// Modes: nondeterminism when an entry differs from the stored one; fenced; turn_not_open when the
	// turn is closed or the step committed; resource_quota; not_found.
	Record(ctx context.Context, h Lease, step int, entries []execution.Entry) error
	// LoadJournal returns the entries of a step with numbers above after, ordered by number, intents
	// before results. A page has at most MaxWindowBytes, but at least the entries of one number. An empty
	// page means that there are no more. Modes: fenced, turn_not_open, not_found.
	LoadJournal(ctx context.Context, h Lease, step, after int) ([]execution.Entry, error)
	// Recording returns the journal of a finished step, so that the step can be run again for comparison. The page
	// begins with the number from; number 0 is the input of the step. It is empty if the store keeps no journals.
	// It is also empty for a step whose calls were answered, because its journal belongs to the step that
	// continued it. Modes: not_found when the session or the turn does not exist.
	Recording(ctx context.Context, ref session.Ref, turnID string, step, from int) ([]execution.Entry, error)
	// LoadRounds returns the history of an agent in a session: the rounds of the steps that committed some, by turn
	// and step. It leaves out steps whose Rounds.After is below from, and returns the latest steps that have at most
	// MaxWindowBytes together. An agent without rounds has none. Modes: not_found when the session does not exist.
	LoadRounds(ctx context.Context, ref session.Ref, agent string, from int64) ([]conversation.Rounds, error)
}

// Limits of journals.
const (
	MaxCommitJournal = 1 << 20  // bytes of entries that a commit may bring
	MaxJournalBytes  = 16 << 20 // bytes in the journal of one step
)

// Begin is a request to begin a turn, or to find or take over an existing one.
type Begin struct {
	Ref     session.Ref
	User    string // whose session it is (empty means no user); the first turn decides, unless UpdateSession has
	TurnID  string
	TraceID string

	Fingerprint string               // digest of the request, so that a turn id stands for one request
	Message     conversation.Message // what the user says (the zero Message means nothing)

	LeaseTTL      time.Duration // MinLeaseTTL to MaxLeaseTTL, by the clock of the store
	TakeoverGrace time.Duration // how long after its lease another open turn is left for a takeover, at most MaxLeaseTTL (0 means not at all)
	LookupOnly    bool          // find the turn; neither open it nor take it over
	LostEpoch     int64         // epoch of an attempt that the holder has abandoned (0 means none)

	Window       int // how many of the latest messages to return, 1 to MaxWindow; at most MaxWindowBytes
	WindowTokens int // limits the window too, at about 4 bytes a token (0 means no such limit)

	From From // what the turn continues (zero means nothing)
}

// From says what a new turn continues: a turn with waiting calls, a failed turn, or a copy of another session. At
// most one of Continues, Resumes and Copy is set.
type From struct {
	Continues string             // id of a turn with waiting calls, whose place this turn takes without a message
	Answers   []execution.Answer // to these calls, settled; only with Continues
	Resumes   string             // id of the session's last turn, which failed, and whose place this turn takes without a message
	Inherited []execution.Result // steps that an earlier turn has finished, by number; only with Resumes or Copy
	Copy      *Copy              // what a session begins with that this turn creates
}

// UserMessages returns the user's message with which the turn begins (empty if the turn has none).
func (b Begin) UserMessages() []conversation.Message {
	if b.Message.Role == "" {
		return nil
	}
	return []conversation.Message{b.Message}
}

// NewFiles returns the attachments of the message that are not stored yet.
func (b Begin) NewFiles() []conversation.Attachment {
	var files []conversation.Attachment
	for _, a := range b.Message.Attachments {
		if a.Version == 0 {
			files = append(files, a)
		}
	}
	return files
}

// UntrustedSource returns the gravest source of untrusted words with which the turn begins (empty
// means none).
func (b Begin) UntrustedSource() string {
	source := ""
	if b.From.Copy != nil {
		source = conversation.GravestSource(conversation.UntrustedSource(b.From.Copy.History), conversation.UntrustedSource(b.From.Copy.StepMessages))
	}
	source = conversation.GravestSource(source, b.Message.UntrustedSource())
	for _, r := range b.From.Inherited {
		source = conversation.GravestSource(source, r.Untrusted)
	}
	return source
}

// BeginStatus says what BeginTurn found or did.
type BeginStatus string

// The statuses of a turn that BeginTurn returns.
const (
	StatusBegun  BeginStatus = "begun"  // the caller holds the turn, which is new or was taken over
	StatusOpen   BeginStatus = "open"   // another caller holds its lease
	StatusClosed BeginStatus = "closed" // it was closed before
)

// BeginResult is the answer to a Begin request.
type BeginResult struct {
	Status        BeginStatus
	Turn          session.Turn
	History       []conversation.Message // window, oldest first, up to the turn's own message if it has one; only with StatusBegun
	LeaseLeft     time.Duration          // remaining lease of an open turn
	KeepsJournals bool                   // the store keeps journals after their commits, for Recording; only with StatusBegun
	Agents        []string               // that have rounds in the session, in any order; only with StatusBegun
}

// Commit is a request to store the result of one step.
type Commit struct {
	Ref      session.Ref
	TurnID   string
	Epoch    int64
	Base     int64 // sequence of the last message of the session that the writer knows
	Messages []conversation.Message
	State    map[string]json.RawMessage // changes of any scope, as in StateUpdate; app: and user: change after the commit, exactly once
	Result   execution.Result           // its step number is the key of the commit
	Outcome  session.Outcome            // closes the turn: completed, input_required or auth_required (open leaves it open)
	Journal  []execution.Entry          // entries that are not stored yet, at most MaxCommitJournal; only if the store keeps journals
	Rounds   []RoundMessage             // whole rounds for the history of the agent, at most MaxWindow messages and MaxWindowBytes
}

// UntrustedSource returns the gravest source of untrusted words that the step has read or written (empty means
// none).
func (c Commit) UntrustedSource() string {
	return conversation.GravestSource(conversation.UntrustedSource(c.Messages), c.Result.Untrusted)
}

// Fail is a request to close a turn without an answer.
type Fail struct {
	Ref     session.Ref
	TurnID  string
	Epoch   int64
	Outcome session.Outcome // failed or cancelled
	Failure *failure.Error
}
