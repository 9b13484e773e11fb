package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// maxEvictions bounds how often BeginTurn comes again because the open turn changed
// between two round trips. Each time another caller got on.
const maxEvictions = 3

// BeginTurn implements memory.Turns.
func (s *Store) BeginTurn(ctx context.Context, b memory.Begin) (memory.Begun, error) {
	const op = "memory.BeginTurn"
	said, err := body(b.Message)
	if err != nil {
		return memory.Begun{}, unencodable(op, err)
	}
	ks, evicted, eviction := keys(b.Ref, b.TurnID), "", []byte{}
	for range maxEvictions {
		r, err := s.run(ctx, op, s.begin, ks, []any{
			b.TurnID, b.TraceID, b.Fingerprint, said,
			b.Lease.Milliseconds(), b.Window, s.cfg.Generation,
			s.cfg.MaxMessages, s.cfg.MaxBytes, retention.Milliseconds(),
			evicted, eviction, b.KnownOnly,
		})
		if err != nil {
			return memory.Begun{}, err
		}
		if r.status() != "evict" {
			return s.begun(op, b, r)
		}
		evicted = r.text(1)
		if eviction, err = leaseRanOut(op, evicted); err != nil {
			return memory.Begun{}, unencodable(op, err)
		}
		ks = append(keys(b.Ref, b.TurnID), key(b.Ref, "turn:"+evicted))
	}
	return memory.Begun{}, busy(op, b.Ref, evicted, "")
}

func (s *Store) begun(op string, b memory.Begin, r reply) (memory.Begun, error) {
	found := memory.Begun{Found: memory.Found(r.status())}
	var err error
	switch r.status() {
	case "begun":
		found.History, err = r.newestFirst(2)
	case "open":
		left, _ := r[2].(int64)
		found.LeaseLeft = max(0, time.Duration(left)*time.Millisecond)
	case "closed":
	case "not_found":
		return memory.Begun{}, unknownTurn(op, b.Ref, b.TurnID)
	case "key_reused":
		return memory.Begun{}, failure.Newf(failure.KeyReused, op,
			"turn %s of session %s was begun with another request; use a new request_id for a new request", b.TurnID, b.Ref.Session).
			With("turn_id", b.TurnID)
	case "session_busy":
		return memory.Begun{}, busy(op, b.Ref, r.text(1), r.text(2))
	case "session_full":
		return memory.Begun{}, s.full(op, b.Ref, r)
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

// leaseRanOut is why a turn that made room for another has no answer.
func leaseRanOut(op, turnID string) ([]byte, error) {
	return encoding.Marshal(failure.ToProto(failure.New(failure.SystemTimeout, op,
		"the turn was given up: its lease ran out before it had an answer, and another turn of the session began").
		With("turn_id", turnID)))
}

func busy(op string, ref session.Ref, turnID, traceID string) error {
	return failure.Newf(failure.SessionBusy, op,
		"session %s works on another turn; wait until it ends, or watch its trace", ref.Session).
		With("turn_id", turnID).With("trace_id", traceID)
}

func (s *Store) full(op string, ref session.Ref, r reply) error {
	return failure.Newf(failure.SessionFull, op,
		"session %s holds %s messages of %d bytes in all; a session may hold %d messages and %d bytes: begin a new session",
		ref.Session, r.text(1), number(r.text(2)), s.cfg.MaxMessages, s.cfg.MaxBytes).
		With("messages", r.text(1)).With("max_messages", strconv.FormatInt(s.cfg.MaxMessages, 10)).
		With("bytes", r.text(2)).With("max_bytes", strconv.FormatInt(s.cfg.MaxBytes, 10))
}
