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

// Turns opens, feeds and closes turns.
type Turns interface {
	// BeginTurn opens a turn: it appends the user's message, mints the epoch and returns
	// the window of the history. What is attached to the message becomes artifacts of the
	// session in the same write, as PutArtifact has it, and the message names their versions
	// (AD-25). A turn without a message goes on where the one before it
	// ended, and appends none (LP-8). A turn that is known is returned as it is (Open, Closed)
	// and nothing is written, unless its lease has run out while it was open: then it is
	// taken over (Begun) with a higher epoch and the next attempt. A turn of another id
	// whose lease ran out longer ago than Reserve is failed first, as FailTurn does it, and makes room; what it
	// had said is kept if there is room for it beside the new message. The holder's own call again,
	// known by its trace id, is answered as before: its first answer may have been lost.
	//
	// A turn with Continues takes the place of one that ended with calls that wait: it gets
	// that turn's window, its steps but for the last, whose journal is now its own, and the
	// next attempt, so that who runs it looks into the journal. Answers are stored with it. Any
	// other new turn leaves the calls without an answer, for good.
	//
	// A turn with Resumes takes the place of the last one of its session, which failed: it gets
	// that turn's window, the journals of the steps that are not Inherited, and the next attempt;
	// tools know their calls by its Origin (OC-27). With Copy it is the first of its session, which
	// begins with what is copied, all or nothing. In both cases the Inherited steps are those of
	// the turn, as if it had committed them.
	//
	// With LostEpoch the holder takes its own turn over at once, when the turn's epoch is
	// still that one; when it is not any more it was taken over already, and the call is the
	// holder's again. With KnownOnly nothing is ever written.
	//
	// The window is what the session held when the turn began: Window of package
	// conversation over the summary, if there is one, and the messages behind it. That of a
	// turn that is taken over is the same.
	//
	// A session remembers the source of untrusted words that came into it with turns, commits, copies and
	// the journals of steps that failed, also when no message has it: the Gravest. The window of
	// a turn is Behind what was remembered when it began, or the turn whose place it takes. Only
	// ClearSession makes a session forget it (S14).
	//
	// Modes: not_found when the turn is not known and KnownOnly is set, and when the session
	// is another user's; key_reused when the turn is known under another fingerprint;
	// session_busy while another turn is open under a lease, or ran out of it less than Reserve ago, with its turn_id and trace_id as
	// facts; session_closed; turn_not_open when the turn that is continued does not wait (any
	// more), or when the turn that is resumed did not fail, is not the last any more, or is
	// forgotten; key_reused when the session of a Copy is known; session_full; resource_quota when the session would have too many artifacts;
	// user_invalid_input by CheckBegin.
	BeginTurn(ctx context.Context, b Begin) (Begun, error)
	// RenewTurn lets the lease of a turn run anew, from now. Modes: fenced, turn_not_open,
	// not_found.
	RenewTurn(ctx context.Context, h Lease, lease time.Duration) error
	// ReleaseTurn ends the lease of a turn, which stays open: the next BeginTurn takes it
	// over, or makes room of it. Modes: fenced, turn_not_open, not_found.
	ReleaseTurn(ctx context.Context, h Lease) error
	// CommitStep makes the messages of one step visible, applies its changes of state and
	// stores its result, all or nothing; an outcome closes the turn in the same write. It
	// returns the sequence of the session's last message. The same commit again is fine and
	// changes nothing. The journal of the step is forgotten, or kept for Recording by a store that
	// is told so. When its result has calls that wait it is kept, as long as the turn is, for the
	// turn that goes on with them. Only the last step may wait, and in a turn that goes on the step
	// that waited comes first.
	//
	// Modes, in the order in which they are looked for: state_violation and
	// user_invalid_input by CheckDelta and CheckPending; not_found; fenced; turn_not_open when the turn is
	// closed or the step was committed with something else; base_mismatch with
	// last_sequence as a fact; session_full; user_invalid_input for user: keys in a session
	// without a user; resource_quota when a scope would hold too much state. Commits that
	// change app: or user: at the same moment may each be let in and together pass the
	// limits; what makes a scope smaller is not refused then.
	CommitStep(ctx context.Context, c Commit) (int64, error)
	// FailTurn closes a turn without an answer and returns it. What the running step had
	// said so far becomes one message that is marked partial (LP-17), when the session has
	// room for it: the texts of the model replies in its journal, parted by blank lines and
	// cut at MaxMessageBytes, by the author of the last of them; PartialOf makes it. The
	// running step is the one behind the last that was committed. A turn that is closed
	// already stays as it is and is returned. The journals of a turn that failed are kept, for
	// the turn that resumes it; those of one that was cancelled are not.
	//
	// Modes: fenced, not_found.
	FailTurn(ctx context.Context, f Fail) (session.Turn, error)
}

// Journal keeps what happened inside running steps, for a successor of their worker.
type Journal interface {
	// Record stores entries of a step of an open turn, all or none. An entry that is stored
	// already is passed over, and number 0, which an attempt is given anew, replaced. At most
	// MaxJournalBytes a step.
	//
	// Modes: nondeterminism when an entry differs from the one that is stored; fenced;
	// turn_not_open when the turn is closed or the step committed; resource_quota; not_found.
	Record(ctx context.Context, h Lease, step int, entries []execution.Entry) error
	// LoadJournal returns entries of a step whose number is above after, by number, intents
	// before results, as many as fit in MaxWindowBytes and at least those of one number.
	// None means that there are no more. Modes: fenced, turn_not_open, not_found.
	LoadJournal(ctx context.Context, h Lease, step, after int) ([]execution.Entry, error)
	// Recording is LoadJournal of a step that is over, from a number on, for who runs it again:
	// number 0 is what it was given. A store that keeps no journals has none, and so has one that
	// does of a step whose calls were answered: its journal is that of the step that went on.
	// Modes: not_found when there is no such session or turn.
	Recording(ctx context.Context, ref session.Ref, turnID string, step, from int) ([]execution.Entry, error)
}

// MaxCommitJournal is how many bytes of entries a commit may bring.
const MaxCommitJournal = 1 << 20

// MaxJournalBytes is what the journal of one step may hold.
const MaxJournalBytes = 16 << 20

// Begin asks for a turn.
type Begin struct {
	Ref           session.Ref
	User          string // whose session it is; empty: nobody's. The first turn decides, if UpdateSession named nobody
	TurnID        string
	TraceID       string
	Fingerprint   string               // a digest of what was asked; a turn id stands for one
	Message       conversation.Message // what the user says; the zero Message: nothing
	LeaseTTL      time.Duration        // MinLease to MaxLease, by the clock of the store
	TakeoverGrace time.Duration        // for how long an open turn of another id is left to who takes it over once its lease has run out, at most MaxLease; 0: it is not
	Window        int                  // how many of the latest messages to return, 1 to MaxWindow; at most MaxWindowBytes
	WindowTokens  int                  // limits the window too, at about 4 bytes a token; 0 does not
	LookupOnly    bool                 // find the turn, and neither open it nor take it over
	LostEpoch     int64                // epoch of an attempt that the holder has given up on; 0: none
	Continues     string               // id of a turn with calls that wait, whose place this one takes; it has no Message. Empty: none
	Answers       []execution.Answer   // to these calls, settled; only with Continues
	Resumes       string               // id of the last turn of the session, which failed, and whose place this one takes; it has no Message. Empty: none
	Inherited     []execution.Result   // steps that an earlier turn is through with, by number; only with Resumes or Copy
	Copy          *Copy                // with what a session begins that is made with this turn; nil: with nothing
}

// UserMessages is the message with which the turn begins, if it has one.
func (b Begin) UserMessages() []conversation.Message {
	if b.Message.Role == "" {
		return nil
	}
	return []conversation.Message{b.Message}
}

// NewFiles are what is attached to the message and not stored yet.
func (b Begin) NewFiles() []conversation.Attachment {
	var files []conversation.Attachment
	for _, a := range b.Message.Attachments {
		if a.Version == 0 {
			files = append(files, a)
		}
	}
	return files
}

// UntrustedSource is that of untrusted words with which the turn begins; empty: there are none.
func (b Begin) UntrustedSource() string {
	source := ""
	if b.Copy != nil {
		source = conversation.Gravest(conversation.Untrusted(b.Copy.History), conversation.Untrusted(b.Copy.StepMessages))
	}
	source = conversation.Gravest(source, b.Message.Source())
	for _, r := range b.Inherited {
		source = conversation.Gravest(source, r.Untrusted)
	}
	return source
}

// BeginStatus says what BeginTurn found.
type BeginStatus string

// What BeginTurn can find.
const (
	StatusBegun  BeginStatus = "begun"  // the turn is the caller's: new, or taken over
	StatusOpen   BeginStatus = "open"   // it is open under somebody's lease
	StatusClosed BeginStatus = "closed" // it was closed before
)

// Begun is the answer to Begin.
type Begun struct {
	Status        BeginStatus
	Turn          session.Turn
	History       []conversation.Message // the window, oldest first, the turn's own message, if any, last, Behind what the session had read; only with FoundBegun
	LeaseLeft     time.Duration          // of an open turn
	KeepsJournals bool                   // the store keeps journals behind their commits, for Recording; only with FoundBegun
}

// Commit is what one step adds to a session.
type Commit struct {
	Ref      session.Ref
	TurnID   string
	Epoch    int64
	Base     int64 // the last message of the session that the writer knows
	Messages []conversation.Message
	State    map[string]json.RawMessage // changes of any scope, as in StateUpdate; those of app: and user: follow the commit, exactly once
	Result   execution.Result           // its step number is the key of the commit
	Outcome  session.Outcome            // completed, input_required or auth_required closes the turn
	Journal  []execution.Entry          // of a turn that is Recorded: entries that are not stored yet, at most MaxCommitJournal
}

// UntrustedSource is that of untrusted words which the step has read, or says; empty: there are none.
func (c Commit) UntrustedSource() string {
	return conversation.Gravest(conversation.Untrusted(c.Messages), c.Result.Untrusted)
}

// Fail closes a turn without an answer.
type Fail struct {
	Ref     session.Ref
	TurnID  string
	Epoch   int64
	Outcome session.Outcome // failed or cancelled
	Failure *failure.Error
}
