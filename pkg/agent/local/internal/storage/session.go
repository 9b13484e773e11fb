// Package storage reads and writes one session of a process in a memory.Store: its messages, its turns and the
// lease that a running turn holds.
package storage

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// callTimeout bounds one read or write, repetitions included.
const callTimeout = 10 * time.Second

// Call calls the store, and repeats the call while the store does not respond, for 10 seconds at most.
func Call[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return retry.Do(ctx, call)
}

// InDoubt reports whether a write that returned err may have happened.
func InDoubt(err error) bool {
	return failure.Is(err, failure.SystemNetwork, failure.SystemTimeout, failure.UserCancelled)
}

// AsFailure returns err as it is stored.
func AsFailure(err error) *failure.Error {
	if e, ok := errors.AsType[*failure.Error](err); ok {
		return e
	}
	return failure.New(failure.ModeOf(err), "local.Turn", "the turn failed; the log of the agent has the cause").Because(err)
}

// Session is one session in a store.
type Session struct {
	Store  memory.Store
	Ref    session.Ref
	User   string
	Lease  time.Duration // of a running turn
	Window int           // messages that a turn gets
}

// Get returns the session as stored.
func (s *Session) Get(ctx context.Context) (session.Session, error) {
	return Call(ctx, func(ctx context.Context) (session.Session, error) { return s.Store.GetSession(ctx, s.Ref) })
}

// Update returns a call of the store that pauses, resumes or closes the session, and creates it if there is none.
func (s *Session) Update(verb session.Verb) func(context.Context) (session.Session, error) {
	return func(ctx context.Context) (session.Session, error) {
		return s.Store.UpdateSession(ctx, memory.SessionUpdate{Ref: s.Ref, Verb: verb, Create: true, User: s.User})
	}
}

// Begin begins a turn, or claims one that is open.
func (s *Session) Begin(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	return Call(ctx, func(ctx context.Context) (memory.BeginResult, error) { return s.Store.BeginTurn(ctx, b) })
}

// Lookup returns a turn as stored, and does not claim it.
func (s *Session) Lookup(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	b.LookupOnly = true
	return s.Begin(ctx, b)
}

// Claim returns the request that claims a stored turn. Its fingerprint is the id of the turn, so every process
// that finds the turn open can take it over.
func (s *Session) Claim(id, trace string) memory.Begin {
	return memory.Begin{
		Ref: s.Ref, User: s.User, TurnID: id, TraceID: trace, Fingerprint: id,
		LeaseTTL: s.Lease, Window: s.Window,
	}
}

// Request returns the request that begins a turn.
func (s *Session) Request(t *Turn) memory.Begin {
	b := s.Claim(t.ID, t.Trace)
	b.Message, b.Predecessor.Continues, b.Predecessor.Answers = t.UserMessage, t.Continues, t.Answers
	return b
}

// LeaseLeft returns how long the lease of a turn still lasts. It is 0 when no process holds one, and when the turn
// was not begun by a local session.
func (s *Session) LeaseLeft(ctx context.Context, turn string) (time.Duration, error) {
	found, err := s.Lookup(ctx, s.Claim(turn, NewTrace()))
	if failure.Is(err, failure.KeyReused, failure.NotFound) {
		return 0, nil
	}
	return found.LeaseLeft, err
}

// Fail closes a turn whose process was lost.
func (s *Session) Fail(ctx context.Context, begun memory.BeginResult) (session.Turn, error) {
	return Call(ctx, func(ctx context.Context) (session.Turn, error) {
		return s.Store.FailTurn(ctx, memory.Fail{
			Ref: s.Ref, TurnID: begun.Turn.ID, Epoch: begun.Turn.Epoch, Outcome: session.OutcomeFailed,
			Failure: failure.New(failure.SystemTimeout, "local.Turn", "the turn was given up: its process was lost before it had an answer"),
		})
	})
}

// Latest returns the latest messages, at most limit of them. info describes the session as stored.
func (s *Session) Latest(ctx context.Context, info session.Session, limit int) ([]conversation.Message, error) {
	if info.Sequence == 0 {
		return nil, nil
	}
	return s.MessagesAfter(ctx, max(0, info.Sequence-int64(limit)))
}

// MessagesAfter returns all messages after a sequence.
func (s *Session) MessagesAfter(ctx context.Context, after int64) ([]conversation.Message, error) {
	var all []conversation.Message
	for {
		page, err := Call(ctx, func(ctx context.Context) ([]conversation.Message, error) {
			return s.Store.LoadHistory(ctx, s.Ref, after, memory.MaxWindow)
		})
		if err != nil || len(page) == 0 {
			return all, err
		}
		all, after = append(all, page...), page[len(page)-1].Sequence
	}
}

// Untrusted returns the source of untrusted text that the store remembers, even if no message has it any more.
func (s *Session) Untrusted(ctx context.Context, info session.Session) (string, error) {
	if info.Turns == 0 {
		return "", nil
	}
	state, err := Call(ctx, func(ctx context.Context) (memory.Snapshot, error) { return s.Store.GetState(ctx, s.Ref) })
	return state.Untrusted, err
}

// NewTrace returns a new trace id.
func NewTrace() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
