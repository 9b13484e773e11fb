package decide

import (
	"context"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// Memory is the part of the memory service that decisions use.
type Memory interface {
	BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error)
	GetSession(ctx context.Context, ref session.Ref) (session.Session, error)
	LoadHistory(ctx context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error)
	LoadRounds(ctx context.Context, ref session.Ref, agent string, from int64, before *conversation.Rounds) ([]conversation.Rounds, error)
	GetState(ctx context.Context, ref session.Ref) (memory.Snapshot, error)
}

// LocateSession returns a request with its run and its session. A request that resumes a trace belongs to the
// session of that trace.
func (d *Decider) LocateSession(ctx context.Context, req request.Request) (request.Request, error) {
	req.Root = request.RootFromParent(req.Parent)
	if !req.Source.IsResume() {
		return req, nil
	}
	found, err := d.earlierTrace(ctx, req)
	if err != nil {
		return req, err
	}
	of := found.Record.GetSessionId()
	if req.Session != "" && req.Session != of {
		return req, failure.Newf(failure.UserInvalidInput, op,
			"session_id: the trace is of session %s, in which its turn is resumed; leave it empty, or fork", of).With("fields", "session_id")
	}
	req.Session = of
	return req, nil
}

// storedTurn is the result of the lookup for a request of any kind but Text.
type storedTurn struct {
	session  session.Session // only for answers
	found    LookupResult
	turn     session.Turn // turn for which the request stands (zero if the result is Absent)
	firstTry BeginAttempt // the first try to begin the turn, if it is MaybeBegun
}

// lookup reads from the memory service what the decision about a request depends on. It changes nothing.
func (d *Decider) lookup(ctx context.Context, req request.Request, kind RequestKind, begin memory.Begin) (s storedTurn, err error) {
	if kind == Answers {
		if s.session, err = d.session(ctx, req.Ref); err != nil {
			return s, err
		}
	}
	known, found, err := d.LookUpTurn(ctx, begin)
	if err != nil && (found != Absent || kind == Answers && s.session.User != req.User) {
		return s, err
	}
	s.found, s.turn = found, known.Turn
	if tried, ok := d.InDoubt.Peek(begin.TurnID); ok && found != Absent && tried.Trace == known.Turn.Trace {
		s.found, s.firstTry = MaybeBegun, tried
	}
	return s, nil
}

func (d *Decider) session(ctx context.Context, ref session.Ref) (session.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	return retry.Do(ctx, func(ctx context.Context) (session.Session, error) { return d.Memory.GetSession(ctx, ref) })
}

// LookUpTurn asks the memory service for the state of a turn and changes nothing. The error is not_found when the
// turn is Absent. After any other error the state is unknown.
func (d *Decider) LookUpTurn(ctx context.Context, begin memory.Begin) (memory.BeginResult, LookupResult, error) {
	begin.LookupOnly = true
	begun, err := d.BeginTurn(ctx, begin)
	switch {
	case failure.Is(err, failure.NotFound):
		return begun, Absent, err
	case err != nil:
		return begun, "", err
	case begun.Status == memory.StatusClosed:
		return begun, Closed, nil
	case begun.Status == memory.StatusOpen && begun.LeaseLeft == 0:
		return begun, LeaseExpired, nil
	default:
		return begun, LeaseHeld, nil
	}
}

// BeginTurn calls BeginTurn of the memory service, with retries.
func (d *Decider) BeginTurn(ctx context.Context, begin memory.Begin) (memory.BeginResult, error) {
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	if begin.LookupOnly {
		begin.Message.Attachments = nil // nothing is stored
	}
	return retry.Do(ctx, func(ctx context.Context) (memory.BeginResult, error) { return d.Memory.BeginTurn(ctx, begin) })
}
