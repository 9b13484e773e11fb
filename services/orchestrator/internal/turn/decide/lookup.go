package decide

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// Memory is what decisions need of the memory service.
type Memory interface {
	BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error)
	GetSession(ctx context.Context, ref session.Ref) (session.Session, error)
	LoadHistory(ctx context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error)
	GetState(ctx context.Context, ref session.Ref) (memory.Snapshot, error)
}

// Locate returns a request with its run, and with its session: a request that resumes a trace belongs to the
// session of that.
func (d *Decider) Locate(ctx context.Context, req request.Request) (request.Request, error) {
	req.Root = request.RootOf(req.Parent)
	if !req.From.IsResume() {
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

// storedTurn is the result of the lookup for a request that is not a text.
type storedTurn struct {
	session  session.Session // only for answers
	found    Found
	turn     session.Turn // that the request stands for, unless it is Absent
	firstTry Try          // the first try to begin the turn, if it is MaybeBegun
}

// lookup asks the memory service for what a request depends on, and changes nothing.
func (d *Decider) lookup(ctx context.Context, req request.Request, kind Kind, begin memory.Begin) (s storedTurn, err error) {
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

// LookUpTurn asks the memory service for the state of a turn, and changes nothing. The error is not_found when
// the turn is Absent; any other error leaves open what there is.
func (d *Decider) LookUpTurn(ctx context.Context, begin memory.Begin) (memory.BeginResult, Found, error) {
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

// earlierTrace returns the trace from which a request continues. A trace of another user is not found.
func (d *Decider) earlierTrace(ctx context.Context, req request.Request) (trace.RunningTrace, error) {
	found, err := d.loadTrace(ctx, trace.Ref{Tenant: req.Tenant, Trace: req.From.Trace})
	if failure.Is(err, failure.NotFound) || err == nil && found.Turn.User != req.User {
		return trace.RunningTrace{}, failure.Newf(failure.NotFound, op,
			"trace_id: no trace %s is known; traces are kept for a while after they end", req.From.Trace)
	}
	return found, err
}

// loadTrace reads a trace. Mode: not_found.
func (d *Decider) loadTrace(ctx context.Context, ref trace.Ref) (trace.RunningTrace, error) {
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	return retry.Do(ctx, func(ctx context.Context) (trace.RunningTrace, error) { return d.Traces.Store().Load(ctx, ref) })
}

// eventPage is how many events are read at once.
const eventPage = 256

// allEvents reads the events of a trace that has ended.
func (d *Decider) allEvents(ctx context.Context, ref trace.Ref, last uint64) (all []*troupev1.Event, err error) {
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	for after := uint64(0); after < last; after = all[len(all)-1].GetSequence() {
		page, err := d.eventPage(ctx, ref, after)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			return nil, errNotContinued("its events are no longer kept", ref.Trace)
		}
		all = append(all, page...)
	}
	return all, nil
}

func (d *Decider) eventPage(ctx context.Context, ref trace.Ref, after uint64) ([]*troupev1.Event, error) {
	return retry.Do(ctx, func(ctx context.Context) ([]*troupev1.Event, error) {
		return d.Traces.Store().Events(ctx, ref, after, eventPage)
	})
}

// messagesUpTo returns the messages of a session up to a sequence, as many as a forked session may have.
func (d *Decider) messagesUpTo(ctx context.Context, ref session.Ref, last int64) ([]conversation.Message, error) {
	var all []conversation.Message
	for from := max(0, last-memory.MaxWindow); from < last; {
		page, err := retry.Do(ctx, func(ctx context.Context) ([]conversation.Message, error) {
			return d.Memory.LoadHistory(ctx, ref, from, memory.MaxWindow)
		})
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		all, from = append(all, page...), page[len(page)-1].Sequence
	}
	return slices.DeleteFunc(all, func(m conversation.Message) bool { return m.Sequence > last }), nil
}

// sessionState returns the present state of a session, without the state of its user and tenant, and the source
// of untrusted text in it. Older states are not kept.
func (d *Decider) sessionState(ctx context.Context, ref session.Ref) (state map[string]json.RawMessage, untrusted string, _ error) {
	seen, err := retry.Do(ctx, func(ctx context.Context) (memory.Snapshot, error) { return d.Memory.GetState(ctx, ref) })
	if err != nil {
		return nil, "", err
	}
	state = map[string]json.RawMessage{}
	for key, value := range seen.Values {
		if memory.ScopeOf(key) == memory.ScopeSession {
			state[key] = value
		}
	}
	return state, seen.Untrusted, nil
}
