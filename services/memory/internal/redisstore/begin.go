package redisstore

import (
	"cmp"
	"context"
	_ "embed"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

//go:embed scripts/begin.lua
var beginSource string

var beginScript = script(turnSource, readSource, shelfSource, attachSource, deltaSource, fromSource, beginSource)

// maxRoom bounds how often BeginTurn comes again because the turn that must make room changed
// between two round trips, or the files of its message become other versions than it said.
// Each time another caller got on, but for one time each.
const maxRoom = 4

// generationBits is how many bits of an epoch are counted within a generation.
const generationBits = 32

// moreResults is how many messages more are read when a window is all tool results: a round
// is rarely longer.
const moreResults = 64

// BeginTurn implements memory.Turns.
func (s *Store) BeginTurn(ctx context.Context, b memory.Begin) (memory.Begun, error) {
	begun, err := s.begin(ctx, b, b.Window)
	// A turn without a message may come behind a round that is longer than its window, which
	// belongs together: its holder asks again.
	for read := b.Window; err == nil && len(begun.History) == read && onlyResults(begun.History); {
		again := b
		again.KnownOnly = true
		read += moreResults
		begun, err = s.begin(ctx, again, read)
	}
	return begun, err
}

func onlyResults(messages []conversation.Message) bool {
	return !slices.ContainsFunc(messages, func(m conversation.Message) bool { return m.Role != conversation.RoleTool })
}

// begin is BeginTurn with so many messages read for the window.
func (s *Store) begin(ctx context.Context, b memory.Begin, read int) (memory.Begun, error) {
	const op = "memory.BeginTurn"
	if err := memory.CheckBegin(op, b); err != nil {
		return memory.Begun{}, err
	}
	generation, err := s.cfg.Generation()
	if err != nil {
		return memory.Begun{}, err
	}
	attached := newFiles(b)
	answers, err := encoding.Marshal(&troupev1.Answers{Answers: wire.AnswersToProto(b.Answers)})
	if err != nil {
		return memory.Begun{}, unencodable(op, err)
	}
	from, err := fromArgs(b)
	if err != nil {
		return memory.Begun{}, unencodable(op, err)
	}
	before := fromKeys(b)
	for range maxRoom {
		ks := keys(b.Ref, b.TurnID, append([]string{"turns", "out"}, before.keys...)...)
		said, err := attached.said()
		if err != nil {
			return memory.Begun{}, unencodable(op, err)
		}
		files, err := attached.args()
		if err != nil {
			return memory.Begun{}, unencodable(op, err)
		}
		args := slices.Concat([]any{
			b.TurnID, b.TraceID, b.Fingerprint, b.User, said, conversation.Size(b.Message),
			b.Lease.Milliseconds(), read, generation << generationBits,
			s.cfg.MaxMessages, s.cfg.MaxBytes, retention.Milliseconds(),
			b.KnownOnly, b.LostEpoch, before.name, before.why, readBytes, before.left.step, before.left.said, before.left.size,
			b.Continues, answers, b.Resumes, placed(from, firstFile+len(files)), b.Reserve.Milliseconds(), len(ks) + 1,
			conversation.Gravest(before.left.source, b.Source()),
		}, files, from)
		r, err := s.run(ctx, op, b.Ref, beginScript, append(ks, attached.keys()...), args...)
		if err != nil {
			return memory.Begun{}, err
		}
		// The answer may be of another Redis than that of which the generation was.
		if now, err := s.cfg.Generation(); err != nil || now != generation {
			return memory.Begun{}, cmp.Or(err, unsure(op))
		}
		if r.status() == "versions" {
			attached = attached.corrected(r)
			continue
		}
		if r.status() == "journals" {
			before = journalsOf(b, r.text(1))
			continue
		}
		if r.status() != "make_room" {
			return s.begun(ctx, op, b, read, before.why != nil, r)
		}
		if before, err = s.before(ctx, op, b, r.text(1)); err != nil {
			return memory.Begun{}, err
		}
	}
	return memory.Begun{}, busy(op, b.Ref, before.name, "")
}

// predecessor is a turn that must make room for a new one.
type predecessor struct {
	name string   // as the script says it
	keys []string // of it, which the script needs
	why  []byte   // it has no answer; nil when it is not open
	left partial  // what it had said
}

// before is the predecessor that the script has named: a turn whose calls wait, as
// <turn>:<step>, or an open one.
func (s *Store) before(ctx context.Context, op string, b memory.Begin, name string) (predecessor, error) {
	p := predecessor{name: name}
	if waiting, step, waits := strings.Cut(name, ":"); waits {
		p.keys = []string{"turn:" + waiting, journalOfWaiting(name), journalOfWaiting(b.TurnID + ":" + step)}
		return p, nil
	}
	var err error
	if p.why, err = leaseRanOut(op, name); err != nil {
		return p, unencodable(op, err)
	}
	if p.left, err = s.saidSoFar(ctx, op, b.Ref, name); err != nil {
		return p, err
	}
	p.keys = []string{"turn:" + name, journalOf(name, p.left.step)}
	return p, nil
}

// begun finishes what the script began: it enters a session in the indexes before anybody
// hears of it, and applies what commits before left behind.
func (s *Store) begun(ctx context.Context, op string, b memory.Begin, read int, evicted bool, r reply) (memory.Begun, error) {
	found, err := s.found(op, b, read, r)
	if err != nil {
		return memory.Begun{}, err
	}
	if b.KnownOnly {
		return found, nil
	}
	// A turn that made room may never have been acknowledged, and so its session neither.
	if found.Found != memory.FoundClosed && (found.Turn.Number == 1 || evicted) {
		if err := s.index(ctx, op, b.Ref, b.User, moment(r.text(3))); err != nil {
			return memory.Begun{}, err
		}
	}
	if r.integer(2) != 0 {
		if err := s.settle(ctx, b.Ref); err != nil {
			return memory.Begun{}, err
		}
	}
	return found, nil
}

// found reads the reply of the script.
func (s *Store) found(op string, b memory.Begin, read int, r reply) (memory.Begun, error) {
	found := memory.Begun{Found: memory.Found(r.status())}
	var err error
	switch r.status() {
	case "begun":
		found.History, err = r.window(4, b, read)
		found.History = conversation.Behind(r.fields(1)["untrusted"], found.History)
		found.Recorded = s.cfg.KeepJournals > 0
	case "open":
		found.LeaseLeft = max(0, time.Duration(r.integer(4))*time.Millisecond)
	case "closed":
	case "no_session":
		return memory.Begun{}, noSession(op, b.Ref)
	case "not_found":
		return memory.Begun{}, unknownTurn(op, b.Ref, b.TurnID)
	case "key_reused":
		return memory.Begun{}, failure.Newf(failure.KeyReused, op,
			"turn %s of session %s was begun with another request; use a new request_id for a new request", b.TurnID, b.Ref.Session).
			With("turn_id", b.TurnID)
	case "session_busy":
		return memory.Begun{}, busy(op, b.Ref, r.text(1), r.text(2))
	case "session_closed":
		return memory.Begun{}, failure.Newf(failure.SessionClosed, op, "session %s is closed; resume it, or begin a new session", b.Ref.Session).
			With("session_id", b.Ref.Session)
	case "not_waiting":
		return memory.Begun{}, memory.NotWaiting(op, b.Continues)
	case "forgotten":
		return memory.Begun{}, memory.WaitedTooLong(op, b.Continues)
	case "gone_on":
		return memory.Begun{}, memory.GoneOn(op, b.Resumes)
	case "failed_long_ago":
		return memory.Begun{}, memory.FailedTooLongAgo(op, b.Resumes)
	case "session_known":
		return memory.Begun{}, memory.SessionKnown(op, b.Ref)
	case "session_full":
		return memory.Begun{}, s.full(op, b.Ref, r)
	case "artifacts_full":
		return memory.Begun{}, artifactsFull(op, "session "+b.Ref.Session, b.Ref, r)
	default:
		return memory.Begun{}, unexpected(op, r)
	}
	if err != nil {
		return memory.Begun{}, unreadable(op, err)
	}
	if found.Turn, err = r.turn(1, b.TurnID); err != nil {
		return memory.Begun{}, unreadable(op, err)
	}
	return found, nil
}

// window reads entries, summarized and summary from place i on: the latest messages that
// fit, oldest first, of at most so many that were read. What a compaction left is the first
// of them when they reach back to it.
func (r reply) window(i int, b memory.Begin, read int) ([]conversation.Message, error) {
	messages, err := r.entries(i)
	if err != nil {
		return nil, err
	}
	if summarized := number(r.text(i + 1)); summarized > 0 && len(messages) < read {
		messages = append(messages, summary(summarized, r.text(i+2)))
	}
	return conversation.Window(oldestFirst(messages), b.Window, int64(b.WindowTokens)), nil
}

// leaseRanOut is why a turn that made room for another has no answer.
func leaseRanOut(op, turnID string) ([]byte, error) {
	return encoding.Marshal(grpcfailure.ToProto(failure.New(failure.SystemTimeout, op,
		"the turn was given up: its lease ran out before it had an answer, and another turn of the session began").
		With("turn_id", turnID)))
}

func unsure(op string) error {
	return failure.New(failure.SystemNetwork, op, "the store was replaced while the turn began; repeat the call")
}
