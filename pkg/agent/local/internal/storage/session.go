// Package storage reads and writes one session in a memory.Store: its messages, its turns and the lease of a
// running turn.
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

// callTimeout bounds one read or write, including retries.
const callTimeout = 10 * time.Second

// CallWithRetry calls the store. While the store does not respond, it retries the call for up to 10 seconds.
func CallWithRetry[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return retry.Do(ctx, call)
}

// InDoubt reports whether a write that returned err may have taken effect.
func InDoubt(err error) bool {
	return failure.Is(err, failure.SystemNetwork, failure.SystemTimeout, failure.UserCancelled)
}

// FailureFromError converts err to the form that is stored with a turn.
func FailureFromError(err error) *failure.Error {
	if e, ok := errors.AsType[*failure.Error](err); ok {
		return e
	}
	return failure.New(failure.ModeOf(err), "local.Turn", "the turn failed; the log of the agent has the cause").Because(err)
}

// Session gives access to one session in a store.
type Session struct {
	Store  memory.Store
	Ref    session.Ref
	User   string
	Lease  time.Duration // duration of the lease of a running turn
	Window int           // number of latest messages that a turn gets
}

// Get returns the session as stored.
func (s *Session) Get(ctx context.Context) (session.Session, error) {
	return CallWithRetry(ctx, func(ctx context.Context) (session.Session, error) { return s.Store.GetSession(ctx, s.Ref) })
}

// UpdateCall returns a call that applies the verb to the stored session: it pauses, resumes or closes it. The call
// creates the session if there is none.
func (s *Session) UpdateCall(verb session.Verb) func(context.Context) (session.Session, error) {
	return func(ctx context.Context) (session.Session, error) {
		return s.Store.UpdateSession(ctx, memory.SessionUpdate{Ref: s.Ref, Verb: verb, Create: true, User: s.User})
	}
}

// Begin sends a request to the store that begins a turn or claims an open one.
func (s *Session) Begin(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	return CallWithRetry(ctx, func(ctx context.Context) (memory.BeginResult, error) { return s.Store.BeginTurn(ctx, b) })
}

// Lookup returns a turn as stored, without claiming it.
func (s *Session) Lookup(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	b.LookupOnly = true
	return s.Begin(ctx, b)
}

// ClaimRequest returns the request that claims a stored turn. Its fingerprint is the id of the turn, so every
// process that finds the turn open can take it over.
func (s *Session) ClaimRequest(id, trace string) memory.Begin {
	return memory.Begin{
		Ref: s.Ref, User: s.User, TurnID: id, TraceID: trace, Fingerprint: id,
		LeaseTTL: s.Lease, Window: s.Window,
	}
}

// BeginRequest returns the request that begins a turn.
func (s *Session) BeginRequest(t *Turn) memory.Begin {
	b := s.ClaimRequest(t.ID, t.Trace)
	b.Message, b.Predecessor.Continues, b.Predecessor.Answers = t.UserMessage, t.Continues, t.Answers
	return b
}

// LeaseLeft returns how long the lease of a turn will last. It is 0 if no process holds the lease, or if the turn
// was not begun by a local session.
func (s *Session) LeaseLeft(ctx context.Context, turn string) (time.Duration, error) {
	found, err := s.Lookup(ctx, s.ClaimRequest(turn, NewTrace()))
	if failure.Is(err, failure.KeyReused, failure.NotFound) {
		return 0, nil
	}
	return found.LeaseLeft, err
}

// FailLostTurn closes a turn of a lost process as failed.
func (s *Session) FailLostTurn(ctx context.Context, begun memory.BeginResult) (session.Turn, error) {
	return CallWithRetry(ctx, func(ctx context.Context) (session.Turn, error) {
		return s.Store.FailTurn(ctx, memory.Fail{
			Ref: s.Ref, TurnID: begun.Turn.ID, Epoch: begun.Turn.Epoch, Outcome: session.OutcomeFailed,
			Failure: failure.New(failure.SystemTimeout, "local.Turn", "the turn was given up: its process was lost before it had an answer"),
		})
	})
}

// Latest returns at most limit of the latest messages. info is the session as stored.
func (s *Session) Latest(ctx context.Context, info session.Session, limit int) ([]conversation.Message, error) {
	if info.LastSequence == 0 {
		return nil, nil
	}
	return s.MessagesAfter(ctx, max(0, info.LastSequence-int64(limit)))
}

// Rounds returns the latest rounds of an agent that follow a message from the given sequence on, as far as one call of the
// store returns them.
func (s *Session) Rounds(ctx context.Context, agent string, from int64) ([]conversation.Rounds, error) {
	return s.roundsBefore(ctx, agent, from, nil)
}

func (s *Session) roundsBefore(ctx context.Context, agent string, from int64, before *conversation.Rounds) ([]conversation.Rounds, error) {
	return CallWithRetry(ctx, func(ctx context.Context) ([]conversation.Rounds, error) {
		return s.Store.LoadRounds(ctx, s.Ref, agent, from, before)
	})
}

// MessagesAfter returns all messages whose sequence is higher than the given one.
func (s *Session) MessagesAfter(ctx context.Context, after int64) ([]conversation.Message, error) {
	var all []conversation.Message
	for {
		page, err := CallWithRetry(ctx, func(ctx context.Context) ([]conversation.Message, error) {
			return s.Store.LoadHistory(ctx, s.Ref, after, memory.MaxWindow)
		})
		if err != nil || len(page) == 0 {
			return all, err
		}
		all, after = append(all, page...), page[len(page)-1].Sequence
	}
}

// Untrusted returns the source of untrusted text that the store remembers for the session. It remembers the source
// even after the message is gone.
func (s *Session) Untrusted(ctx context.Context, info session.Session) (string, error) {
	if info.Turns == 0 {
		return "", nil
	}
	state, err := CallWithRetry(ctx, func(ctx context.Context) (memory.Snapshot, error) { return s.Store.GetState(ctx, s.Ref) })
	return state.Untrusted, err
}

// NewTrace returns a new trace id.
func NewTrace() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
