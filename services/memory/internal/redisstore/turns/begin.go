package turns

import (
	"cmp"
	"context"
	_ "embed"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/storeerror"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/contents"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/delta"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/journal"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/messages"
)

//go:embed scripts/begin.lua
var beginSource string

var beginScript = db.Register("begin", db.TurnSource, messages.ReadSource, contents.Source, attachSource, delta.Source, originSource, beginSource)

// maxBeginAttempts bounds how often BeginTurn runs its script. The script runs again if it needs the keys of an
// earlier turn. It also runs again if files get other versions than assumed. Except for one attempt for each of
// these reasons, another caller made progress.
const maxBeginAttempts = 4

// extraWindowMessages is how many more messages are read each time a window has only tool results. A round of tool
// calls is rarely longer.
const extraWindowMessages = 64

// BeginTurn implements memory.Turns.
func (t *Turns) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	begun, err := t.beginWithWindow(ctx, b, b.Window)
	// A turn without a message may follow a round of tool calls that is longer than its window. A round must not
	// be split, so more messages are read until the window includes the calls.
	for read := b.Window; err == nil && len(begun.History) == read && hasOnlyToolResults(begun.History); {
		again := b
		again.LookupOnly = true
		read += extraWindowMessages
		begun, err = t.beginWithWindow(ctx, again, read)
	}
	return begun, err
}

func hasOnlyToolResults(messages []conversation.Message) bool {
	return !slices.ContainsFunc(messages, func(m conversation.Message) bool { return m.Role != conversation.RoleTool })
}

// beginWithWindow implements BeginTurn. It reads the given number of messages for the window.
func (t *Turns) beginWithWindow(ctx context.Context, b memory.Begin, read int) (memory.BeginResult, error) {
	const op = "memory.BeginTurn"
	if err := b.Check(op); err != nil {
		return memory.BeginResult{}, err
	}
	least, err := t.cfg.LeastEpoch()
	if err != nil {
		return memory.BeginResult{}, err
	}
	attempt := beginAttempt{request: b, windowLength: read, leastEpoch: least, files: newFiles(b), predecessor: newResumePredecessor(b)}
	for range maxBeginAttempts {
		keys, args, err := attempt.keysAndArgs(t.cfg)
		if err != nil {
			return memory.BeginResult{}, db.NewUnencodableError(op, err)
		}
		r, err := t.db.RunScript(ctx, op, b.Ref, beginScript, keys, args...)
		if err != nil {
			return memory.BeginResult{}, err
		}
		// The reply may come from another Redis process than the one whose generation was checked, so the
		// generation is checked again.
		if now, err := t.cfg.LeastEpoch(); err != nil || now != least {
			return memory.BeginResult{}, cmp.Or(err, storeReplacedError(op))
		}
		switch r.Status() {
		case "versions":
			attempt.files = attempt.files.withVersions(r)
		case "journals":
			attempt.predecessor = newResumePredecessorWithJournals(b, r.Text(1))
		case "make_room":
			if attempt.predecessor, err = t.loadPredecessor(ctx, op, b, r.Text(1)); err != nil {
				return memory.BeginResult{}, err
			}
		default:
			return t.finishBegin(ctx, op, attempt, r)
		}
	}
	return memory.BeginResult{}, db.NewSessionBusyError(op, b.Ref, attempt.predecessor.name, "")
}

// predecessor is an earlier turn whose keys the script needs, because the new turn evicts it, continues it or
// resumes it.
type predecessor struct {
	name           string   // name that the script uses for the turn
	keys           []string // keys of the turn, which the script needs
	encodedFailure []byte   // encoded reason why the turn is evicted (nil if it is not open)
	partial        journal.PartialReply
}

// loadPredecessor returns the turn that the script named: a turn with waiting calls, as <turn>:<step>,<step>, or an open
// turn.
func (t *Turns) loadPredecessor(ctx context.Context, op string, b memory.Begin, name string) (predecessor, error) {
	p := predecessor{name: name}
	if waiting, steps, waits := strings.Cut(name, ":"); waits {
		p.keys = []string{"turn:" + waiting}
		moved := db.WaitingJournalNames(b.TurnID + ":" + steps)
		for i, journal := range db.WaitingJournalNames(name) {
			p.keys = append(p.keys, journal, moved[i])
		}
		return p, nil
	}
	var err error
	if p.encodedFailure, err = encodeLeaseExpired(op, name); err != nil {
		return p, db.NewUnencodableError(op, err)
	}
	if p.partial, err = t.journal.ReadPartialReply(ctx, op, b.Ref, name); err != nil {
		return p, err
	}
	p.keys = []string{"turn:" + name}
	for _, step := range p.partial.Journals {
		p.keys = append(p.keys, db.JournalName(name, step))
	}
	return p, nil
}

// finishBegin completes what the script began: it adds a new session to the indexes and drains the outbox. It does
// so before any caller learns of the session.
func (t *Turns) finishBegin(ctx context.Context, op string, attempt beginAttempt, r db.Reply) (memory.BeginResult, error) {
	b := attempt.request
	begun, err := t.decodeBeginReply(op, b, attempt.windowLength, r)
	if err != nil {
		return memory.BeginResult{}, err
	}
	if b.LookupOnly {
		return begun, nil
	}
	// The begin of an evicted turn may have failed before its session was added to the indexes.
	evicted := attempt.predecessor.encodedFailure != nil
	if begun.Status != memory.StatusClosed && (begun.Turn.Number == 1 || evicted) {
		if err := t.index.Add(ctx, op, b.Ref, b.User, db.ParseTime(r.Text(3))); err != nil {
			return memory.BeginResult{}, err
		}
	}
	if r.Integer(2) != 0 {
		if err := t.outbox.Drain(ctx, b.Ref); err != nil {
			return memory.BeginResult{}, err
		}
	}
	return begun, nil
}

// decodeBeginReply decodes the reply of the script.
func (t *Turns) decodeBeginReply(op string, b memory.Begin, read int, r db.Reply) (memory.BeginResult, error) {
	begun := memory.BeginResult{Status: memory.BeginStatus(r.Status())}
	var err error
	switch r.Status() {
	case "begun":
		begun.History, err = decodeWindow(r[min(4, len(r)):], b, read)
		begun.History = conversation.MarkUntrusted(r.Hash(1)["untrusted"], begun.History)
		begun.KeepsJournals, begun.Agents = t.cfg.KeepJournals > 0, journal.ParseAgents(r.Text(7))
		begun.Messages, begun.Removed = db.ParseNumber(r.Hash(1)["held"]), db.ParseNumber(r.Text(9))
		if err == nil {
			begun.Settings, err = db.DecodeSettings(r.Text(8))
		}
	case "open":
		begun.LeaseLeft = max(0, time.Duration(r.Integer(4))*time.Millisecond)
	case "closed":
	default:
		return memory.BeginResult{}, t.beginErrorFromReply(op, b, r)
	}
	if err != nil {
		return memory.BeginResult{}, db.NewUnreadableError(op, err)
	}
	if begun.Turn, err = decodeTurn(b.TurnID, r.Hash(1)); err != nil {
		return memory.BeginResult{}, db.NewUnreadableError(op, err)
	}
	return begun, nil
}

// beginErrorFromReply returns the error for a reply that rejects a turn.
func (t *Turns) beginErrorFromReply(op string, b memory.Begin, r db.Reply) error {
	switch r.Status() {
	case "no_session":
		return db.NewSessionNotFoundError(op, b.Ref)
	case "not_found":
		return db.NewTurnNotFoundError(op, b.Ref, b.TurnID)
	case "key_reused":
		return failure.Newf(failure.KeyReused, op,
			"turn %s of session %s was begun with another request; use a new request_id for a new request", b.TurnID, b.Ref.Session).
			With("turn_id", b.TurnID)
	case "session_busy":
		return db.NewSessionBusyError(op, b.Ref, r.Text(1), r.Text(2))
	case "session_closed":
		return failure.Newf(failure.SessionClosed, op, "session %s is closed; resume it, or begin a new session", b.Ref.Session).
			With("session_id", b.Ref.Session)
	case "not_waiting":
		return storeerror.NotWaiting(op, b.Predecessor.Continues)
	case "forgotten":
		return storeerror.WaitExpired(op, b.Predecessor.Continues)
	case "gone_on":
		return storeerror.NotResumable(op, b.Predecessor.Resumes)
	case "failed_long_ago":
		return storeerror.ResumeExpired(op, b.Predecessor.Resumes)
	case "session_known":
		return storeerror.SessionExists(op, b.Ref)
	case "session_full":
		return t.limitExceededError(op, b.Ref, r)
	case "artifacts_full":
		return contents.NewLimitExceededError(op, "session "+b.Ref.Session, b.Ref, r)
	default:
		return db.NewUnexpectedReplyError(op, r)
	}
}

// decodeWindow decodes the window of the turn: the latest messages that fit, oldest first. r has the entries of
// the log, and the sequence and text of the summary. The window begins with the summary if the entries reach back
// to it.
func decodeWindow(r db.Reply, b memory.Begin, read int) ([]conversation.Message, error) {
	window, err := messages.DecodeEntries(r.Array(0))
	if err != nil {
		return nil, err
	}
	if summarized := db.ParseNumber(r.Text(1)); summarized > 0 && len(window) < read {
		window = append(window, messages.SummaryMessage(summarized, r.Text(2)))
	}
	return conversation.Window(messages.ReverseFitting(window), b.Window, int64(b.WindowTokens)), nil
}

// encodeLeaseExpired encodes the failure of a turn that was evicted because its lease had expired.
func encodeLeaseExpired(op, turnID string) ([]byte, error) {
	return db.Encoding.Marshal(grpcfailure.ToProto(failure.New(failure.SystemTimeout, op,
		"the turn was abandoned: its lease expired before it had an answer, and another turn of the session began").
		With("turn_id", turnID)))
}

func storeReplacedError(op string) error {
	return failure.New(failure.SystemNetwork, op, "the store was replaced while the turn began; repeat the call")
}
