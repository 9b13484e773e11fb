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

// maxBeginAttempts bounds how often BeginTurn runs its script again. That happens when the turn that must make
// room changes between two round trips, or when the files of the message get other versions than assumed.
// Except for one attempt each, another caller made progress.
const maxBeginAttempts = 4

// moreResults is how many more messages are read when a window has only tool results. A round of tool
// calls is rarely longer.
const moreResults = 64

// BeginTurn implements memory.Turns.
func (t *Turns) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	begun, err := t.begin(ctx, b, b.Window)
	// A turn without a message may follow a round of tool calls that is longer than its window. A round
	// must not be split, so the holder of the turn asks again for more.
	for read := b.Window; err == nil && len(begun.History) == read && hasOnlyResults(begun.History); {
		again := b
		again.LookupOnly = true
		read += moreResults
		begun, err = t.begin(ctx, again, read)
	}
	return begun, err
}

func hasOnlyResults(messages []conversation.Message) bool {
	return !slices.ContainsFunc(messages, func(m conversation.Message) bool { return m.Role != conversation.RoleTool })
}

// begin is BeginTurn with a given number of messages to read for the window.
func (t *Turns) begin(ctx context.Context, b memory.Begin, read int) (memory.BeginResult, error) {
	const op = "memory.BeginTurn"
	if err := b.Check(op); err != nil {
		return memory.BeginResult{}, err
	}
	least, err := t.cfg.LeastEpoch()
	if err != nil {
		return memory.BeginResult{}, err
	}
	attempt := beginAttempt{begin: b, read: read, leastEpoch: least, files: newFiles(b), predecessor: resumeKeys(b)}
	for range maxBeginAttempts {
		keys, args, err := attempt.keysAndArgs(t.cfg)
		if err != nil {
			return memory.BeginResult{}, db.UnencodableError(op, err)
		}
		r, err := t.db.Run(ctx, op, b.Ref, beginScript, keys, args...)
		if err != nil {
			return memory.BeginResult{}, err
		}
		// The reply may come from another Redis process than the one whose generation was read, so the
		// generation is checked again.
		if now, err := t.cfg.LeastEpoch(); err != nil || now != least {
			return memory.BeginResult{}, cmp.Or(err, storeReplaced(op))
		}
		switch r.Status() {
		case "versions":
			attempt.files = attempt.files.withVersions(r)
		case "journals":
			attempt.predecessor = resumeJournalKeys(b, r.Text(1))
		case "make_room":
			if attempt.predecessor, err = t.predecessor(ctx, op, b, r.Text(1)); err != nil {
				return memory.BeginResult{}, err
			}
		default:
			return t.finishBegin(ctx, op, attempt, r)
		}
	}
	return memory.BeginResult{}, db.SessionBusyError(op, b.Ref, attempt.predecessor.name, "")
}

// predecessor is an earlier turn whose keys the script needs: one that makes room for the new turn, or
// one that the new turn resumes.
type predecessor struct {
	name    string   // as the script names it
	keys    []string // its keys, which the script needs
	failure []byte   // why it has no answer (nil when it is not open)
	partial journal.Partial
}

// predecessor returns the turn that the script named: a turn whose calls wait, as <turn>:<step>, or an
// open one.
func (t *Turns) predecessor(ctx context.Context, op string, b memory.Begin, name string) (predecessor, error) {
	p := predecessor{name: name}
	if waiting, step, waits := strings.Cut(name, ":"); waits {
		p.keys = []string{"turn:" + waiting, db.WaitingJournalName(name), db.WaitingJournalName(b.TurnID + ":" + step)}
		return p, nil
	}
	var err error
	if p.failure, err = encodeLeaseExpired(op, name); err != nil {
		return p, db.UnencodableError(op, err)
	}
	if p.partial, err = t.journal.ReadPartial(ctx, op, b.Ref, name); err != nil {
		return p, err
	}
	p.keys = []string{"turn:" + name, db.JournalName(name, p.partial.Step)}
	return p, nil
}

// finishBegin completes what the script began. It enters a session in the indexes before any caller
// learns of it, and drains the outbox.
func (t *Turns) finishBegin(ctx context.Context, op string, attempt beginAttempt, r db.Reply) (memory.BeginResult, error) {
	b := attempt.begin
	begun, err := t.decodeBegun(op, b, attempt.read, r)
	if err != nil {
		return memory.BeginResult{}, err
	}
	if b.LookupOnly {
		return begun, nil
	}
	// The begin of an evicted turn may never have been acknowledged. Then its session is in no index yet.
	evicted := attempt.predecessor.failure != nil
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

// decodeBegun reads the reply of the script.
func (t *Turns) decodeBegun(op string, b memory.Begin, read int, r db.Reply) (memory.BeginResult, error) {
	begun := memory.BeginResult{Status: memory.BeginStatus(r.Status())}
	var err error
	switch r.Status() {
	case "begun":
		begun.History, err = decodeWindow(r[min(4, len(r)):], b, read)
		begun.History = conversation.MarkUntrusted(r.Fields(1)["untrusted"], begun.History)
		begun.KeepsJournals, begun.Agents = t.cfg.KeepJournals > 0, journal.ParseAgents(r.Text(7))
	case "open":
		begun.LeaseLeft = max(0, time.Duration(r.Integer(4))*time.Millisecond)
	case "closed":
	default:
		return memory.BeginResult{}, t.beginError(op, b, r)
	}
	if err != nil {
		return memory.BeginResult{}, db.UnreadableError(op, err)
	}
	if begun.Turn, err = decodeTurn(b.TurnID, r.Fields(1)); err != nil {
		return memory.BeginResult{}, db.UnreadableError(op, err)
	}
	return begun, nil
}

// beginError returns the error for a reply with which the script rejected a turn.
func (t *Turns) beginError(op string, b memory.Begin, r db.Reply) error {
	switch r.Status() {
	case "no_session":
		return db.NoSessionError(op, b.Ref)
	case "not_found":
		return db.UnknownTurnError(op, b.Ref, b.TurnID)
	case "key_reused":
		return failure.Newf(failure.KeyReused, op,
			"turn %s of session %s was begun with another request; use a new request_id for a new request", b.TurnID, b.Ref.Session).
			With("turn_id", b.TurnID)
	case "session_busy":
		return db.SessionBusyError(op, b.Ref, r.Text(1), r.Text(2))
	case "session_closed":
		return failure.Newf(failure.SessionClosed, op, "session %s is closed; resume it, or begin a new session", b.Ref.Session).
			With("session_id", b.Ref.Session)
	case "not_waiting":
		return storeerror.NotWaiting(op, b.From.Continues)
	case "forgotten":
		return storeerror.WaitExpired(op, b.From.Continues)
	case "gone_on":
		return storeerror.NotResumable(op, b.From.Resumes)
	case "failed_long_ago":
		return storeerror.ResumeExpired(op, b.From.Resumes)
	case "session_known":
		return storeerror.SessionExists(op, b.Ref)
	case "session_full":
		return t.limitExceededError(op, b.Ref, r)
	case "artifacts_full":
		return contents.LimitExceededError(op, "session "+b.Ref.Session, b.Ref, r)
	default:
		return db.UnexpectedReplyError(op, r)
	}
}

// decodeWindow reads the entries, the sequence and the text of the summary: the latest messages that fit,
// oldest first. The summary is the first of them when the messages that were read reach back to it.
func decodeWindow(r db.Reply, b memory.Begin, read int) ([]conversation.Message, error) {
	window, err := messages.DecodeAll(r.List(0))
	if err != nil {
		return nil, err
	}
	if summarized := db.ParseNumber(r.Text(1)); summarized > 0 && len(window) < read {
		window = append(window, messages.SummaryMessage(summarized, r.Text(2)))
	}
	return conversation.Window(messages.OldestFirst(window), b.Window, int64(b.WindowTokens)), nil
}

// encodeLeaseExpired encodes the failure of a turn that had to make room for another one, because its lease had
// expired.
func encodeLeaseExpired(op, turnID string) ([]byte, error) {
	return db.Encoding.Marshal(grpcfailure.ToProto(failure.New(failure.SystemTimeout, op,
		"the turn was given up: its lease ran out before it had an answer, and another turn of the session began").
		With("turn_id", turnID)))
}

func storeReplaced(op string) error {
	return failure.New(failure.SystemNetwork, op, "the store was replaced while the turn began; repeat the call")
}
