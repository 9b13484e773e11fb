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
	// BeginTurn opens a turn. It appends the user's message, assigns an epoch, and returns the window of the
	// history. Files of the message become artifacts of the session in the same write, as with PutArtifact, and
	// the stored message names their versions (AD-25). A turn without a message continues the session where the
	// previous turn ended (LP-8).
	//
	// What happens depends on the turn that is found:
	//   - A known turn is returned unchanged (StatusOpen, StatusClosed), and nothing is written.
	//   - A known turn that is open and whose lease has expired is taken over (StatusBegun), with a higher
	//     epoch and the next attempt.
	//   - A repeated call of the holder, recognized by its trace id, gets the same answer as before. The
	//     first answer may have been lost.
	//   - If another turn is open and its lease expired longer ago than TakeoverGrace, that turn is failed
	//     first, as with FailTurn. Its partial message is kept if there is room for it and the new message.
	//
	// With LookupOnly, nothing is ever written. With LostEpoch, the holder takes over its own turn at once if the
	// turn still has that epoch. If the turn has a higher epoch, it was already taken over, and the call is
	// treated as a repetition.
	//
	// A turn with Continues replaces a turn that ended with waiting calls. It gets that turn's window, the steps without
	// waiting calls as inherited ones, the journals of the others, and the next attempt. The Answers are stored with
	// it. Any other new turn drops the waiting calls for good.
	//
	// A turn with Resumes replaces the session's last turn, which failed. It gets that turn's window, the journals
	// of the steps that are not Inherited, and the next attempt. Tools recognize repeated calls by the turn's
	// OriginTurnID (OC-27). A turn with Copy is the first turn of its session. The session begins with the copied data,
	// all or nothing. With Resumes and with Copy, the Inherited steps count as committed.
	//
	// The window is what conversation.Window returns for the summary and the messages after it, at the time when
	// the turn began. It is the same after a takeover.
	//
	// A session remembers the gravest source of untrusted words that it received: from turns, commits and copies,
	// and from journals of steps that failed. It does so even if no message has the source. The window is marked
	// with the source that the session remembered when the turn began (see conversation.MarkUntrusted). For a turn
	// that replaces another, it is the source when the replaced turn began. Only ClearSession removes the source
	// (guarantee S14).
	//
	// Modes:
	//   - not_found: LookupOnly is set and the turn is unknown, or the session has another user
	//   - key_reused: the turn is known with another fingerprint, or the session of a Copy exists
	//   - session_busy: another turn is open, and its lease has not expired or is in its TakeoverGrace;
	//     turn_id and trace_id are facts
	//   - session_closed
	//   - turn_not_open: the continued turn has no waiting calls (any more), or the resumed turn did not
	//     fail, is not the last, or is no longer stored
	//   - session_full
	//   - resource_quota: the session would have too many artifacts
	//   - user_invalid_input: see Begin.Check
	BeginTurn(ctx context.Context, b Begin) (BeginResult, error)
	// RenewTurn sets the lease of a turn to end ttl from now. Modes: fenced, turn_not_open, not_found.
	RenewTurn(ctx context.Context, h Lease, ttl time.Duration) error
	// ReleaseTurn ends the lease of a turn and leaves the turn open. The next BeginTurn takes it over, or fails it
	// so that another turn can begin. Modes: fenced, turn_not_open, not_found.
	ReleaseTurn(ctx context.Context, h Lease) error
	// CommitStep stores the messages, the state changes and the result of one step, all or nothing. An outcome
	// closes the turn in the same write. CommitStep returns the sequence of the session's last message. Repeating
	// the same commit succeeds and changes nothing.
	//
	// The journal of the step is deleted except for the entries that its Rounds name, unless the store keeps
	// journals (see Recording). If the result has
	// waiting calls, the journal is kept as long as the turn, for the turn that continues with their answers. Only
	// the last step of a turn may have waiting calls. A turn that continues must commit the steps with these calls
	// first.
	//
	// The Rounds of the step join the history of its agent, which LoadRounds returns. The journal entries that they
	// name are kept as long as the session.
	//
	// Modes, checked in this order: state_violation and user_invalid_input by Commit.Check; not_found; fenced;
	// turn_not_open when the turn is closed or the step was committed with other content; base_mismatch with
	// last_sequence as a fact; user_invalid_input for rounds that name an unknown entry; session_full;
	// user_invalid_input for user: keys in a session without a user; revision_mismatch when a key does not have its
	// Expected revision; resource_quota when a scope would hold too much state. Concurrent commits to app: or user: may
	// each pass this last check and exceed the limit together. Changes that make a scope smaller always pass.
	//
	// No other caller changes a key with an Expected revision between this check and the change. After revision_mismatch
	// the step may be committed with other values and revisions.
	CommitStep(ctx context.Context, c Commit) (int64, error)
	// FailTurn closes a turn without an answer and returns it.
	//
	// With the outcome input_required or auth_required, the turn waits for answers to calls of its Results. These are
	// steps that no commit could close the turn with, because others ran at the same time. Their journals are kept as
	// long as the turn, for the turn that continues with the answers.
	//
	// With another outcome, and if the session has room, FailTurn stores the
	// unfinished reply of the running step as one message that is marked partial (LP-17, see PartialMessage). The
	// running step is the one after the last committed step. A closed turn is returned unchanged. The journals of
	// a failed turn are kept for the turn that resumes it. The journals of a cancelled turn are deleted. Modes:
	// fenced, not_found, user_invalid_input by Fail.Check, turn_not_open if one of the Results is committed.
	FailTurn(ctx context.Context, f Fail) (session.Turn, error)
}

// Journal stores the actions of steps and their results. A successor of the worker does not repeat those of a running
// step, and an agent remembers those of its committed steps.
type Journal interface {
	// Record stores entries of a step of an open turn, all or none. Entries that are already stored are skipped.
	// Entry 0, the step's input, is replaced, because each attempt gets a new input. A step has at most
	// MaxJournalBytes.
	//
	// Modes: nondeterminism when an entry differs from the stored one; fenced; turn_not_open when the turn is
	// closed or the step committed; resource_quota; not_found.
	Record(ctx context.Context, h Lease, step int, entries []execution.Entry) error
	// LoadJournal returns the entries of a step with numbers greater than after, ordered by number, intents before
	// results. A page has at most MaxWindowBytes, but at least the entries of one number. An empty page means that
	// there are no more. Modes: fenced, turn_not_open, not_found.
	LoadJournal(ctx context.Context, h Lease, step, after int) ([]execution.Entry, error)
	// Recording returns the journal of a finished step, so that the step can be run again for comparison. The page
	// begins with the entry numbered from; entry 0 is the input of the step. The page is empty if the store keeps
	// no journals. It is also empty for a step whose calls were answered, because its journal belongs to the step
	// that continued it. Modes: not_found when the session or the turn does not exist.
	Recording(ctx context.Context, ref session.Ref, turnID string, step, from int) ([]execution.Entry, error)
	// LoadRounds returns the history of an agent in a session: the rounds of the steps that committed some, in
	// the order of Rounds.Compare. It leaves out steps whose Rounds.After is below from, and returns the latest steps that
	// have at most MaxWindowBytes together. To read the whole history, call it again with the first of the rounds
	// returned as before, until none are left: it then returns only steps that come before that one (nil means all). The
	// messages of before are ignored. An agent without rounds has none. Modes: not_found when the session does not exist.
	LoadRounds(ctx context.Context, ref session.Ref, agent string, from int64, before *conversation.Rounds) ([]conversation.Rounds, error)
}

// Limits of journals.
const (
	MaxCommitJournal = 1 << 20  // bytes of journal entries in one commit
	MaxJournalBytes  = 16 << 20 // bytes in the journal of one step
)

// Begin is a request to begin a turn, or to find or take over an existing one.
type Begin struct {
	Ref     session.Ref
	User    string // user of the session (empty means none); set by the first turn, unless UpdateSession set it
	TurnID  string
	TraceID string

	Fingerprint string               // digest of the request, so that a turn id stands for one request
	Message     conversation.Message // message of the user (the zero Message means none)

	LeaseTTL      time.Duration // MinLeaseTTL to MaxLeaseTTL, by the clock of the store
	TakeoverGrace time.Duration // how long another open turn can be taken over after its lease, at most MaxLeaseTTL (0 means not at all)
	LookupOnly    bool          // only find the turn, without opening it or taking it over
	LostEpoch     int64         // epoch of an attempt that the holder has abandoned (0 means none)

	Window       int // how many of the latest messages to return, 1 to MaxWindow; at most MaxWindowBytes
	WindowTokens int // further limit of the window, at about 4 bytes per token (0 means none)

	Predecessor Predecessor // what the turn continues (the zero value means nothing)
}

// Predecessor says what a new turn continues: a turn with waiting calls, a failed turn, or a copy of another
// session. At most one of Continues, Resumes and Copy is set.
type Predecessor struct {
	Continues string             // id of a turn with waiting calls, which this turn replaces without a message
	Answers   []execution.Answer // final answers to these calls; only with Continues
	Resumes   string             // id of the session's last turn, which failed and which this turn replaces without a message
	Inherited []execution.Result // results of steps that an earlier turn finished, by number; only with Resumes or Copy
	Copy      *Copy              // data for the new session that this turn creates
}

// UserMessages returns the user's message with which the turn begins. It is empty if the turn has no message.
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
	if b.Predecessor.Copy != nil {
		source = conversation.MostRestrictiveSource(conversation.UntrustedSource(b.Predecessor.Copy.History),
			conversation.UntrustedSource(b.Predecessor.Copy.StepMessages))
	}
	source = conversation.MostRestrictiveSource(source, b.Message.UntrustedSource())
	for _, r := range b.Predecessor.Inherited {
		source = conversation.MostRestrictiveSource(source, r.Untrusted)
	}
	return source
}

// BeginStatus says whether BeginTurn gave the caller the turn, or in which state it found the turn.
type BeginStatus string

// Statuses that BeginTurn returns.
const (
	StatusBegun  BeginStatus = "begun"  // the caller holds the turn, which is new or was taken over
	StatusOpen   BeginStatus = "open"   // another caller holds its lease
	StatusClosed BeginStatus = "closed" // the turn was closed before
)

// BeginResult is the result of BeginTurn: the turn and, if the caller holds it, the window of the history.
type BeginResult struct {
	Status        BeginStatus
	Turn          session.Turn
	History       []conversation.Message // window, oldest first, up to the turn's own message if it has one; only with StatusBegun
	LeaseLeft     time.Duration          // remaining lease of an open turn
	KeepsJournals bool                   // whether the store keeps journals after the commit, for Recording; only with StatusBegun
	Agents        []string               // agents that have rounds in the session, in any order; only with StatusBegun
	Settings      session.Settings       // of the session; only with StatusBegun
	Messages      int64                  // number of messages of the session before the turn; only with StatusBegun
	Removed       int64                  // sequences whose message a summary replaced; only with StatusBegun
}

// Commit is a request to store the result of one step.
type Commit struct {
	Ref      session.Ref
	TurnID   string
	Epoch    int64
	Base     int64 // sequence of the last message of the session that the writer knows
	Messages []conversation.Message
	State    map[string]json.RawMessage // changes of any scope, as in StateUpdate; app: and user: changes are applied after the commit, exactly once
	Expected map[string]int64           // revisions that keys of app: and user: in State must still have, as in Snapshot.Keys (0 means the key does not exist)
	Result   execution.Result           // its step number identifies the commit
	Outcome  session.Outcome            // outcome that closes the turn: completed, input_required or auth_required (open keeps it open)
	Journal  []execution.Entry          // entries that are not stored yet, at most MaxCommitJournal; only if the store keeps journals
	Rounds   []RoundMessage             // whole rounds for the history of the agent, at most MaxWindow messages and MaxWindowBytes
}

// UntrustedSource returns the gravest source of untrusted words that the step has read or written (empty means
// none).
func (c Commit) UntrustedSource() string {
	source := conversation.MostRestrictiveSource(conversation.UntrustedSource(c.Messages), c.Result.Untrusted)
	for _, r := range c.Rounds {
		source = conversation.MostRestrictiveSource(source, r.UntrustedSource())
	}
	return source
}

// Fail is a request to close a turn without an answer.
type Fail struct {
	Ref     session.Ref
	TurnID  string
	Epoch   int64
	Outcome session.Outcome    // failed or cancelled; input_required or auth_required if calls of Results wait
	Failure *failure.Error     // only of a failed or cancelled turn
	Results []execution.Result // of steps that are not committed: calls of theirs wait, or they failed; only if calls wait
}
