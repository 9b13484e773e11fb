package turn

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Request is one user input.
type Request struct {
	Tenant    string
	Session   string
	RequestID string
	Text      string
	Target    string        // workflow or agent, as the caller named it; empty: the default workflow
	Timeout   time.Duration // 0: the runner's
}

func (r Request) ref() session.Ref { return session.Ref{Tenant: r.Tenant, Session: r.Session} }

// fingerprint tells whether two requests with one id ask the same.
func (r Request) fingerprint() string {
	sum := sha256.Sum256([]byte(r.Target + "\x00" + r.Text))
	return hex.EncodeToString(sum[:16])
}

// begin opens the turn and sets it going, or finds it. Concurrent calls for one turn join.
func (r *Runner) begin(ctx context.Context, req Request) (memory.Begun, error) {
	turnID := session.TurnID(req.ref(), req.RequestID)
	flight := r.begins.DoChan(turnID+req.fingerprint(), func() (_ any, err error) {
		defer failure.Contain("turn.Orchestrate", &err)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beginTime)
		defer cancel()
		return r.admit(ctx, req, turnID)
	})
	select {
	case result := <-flight:
		begun, _ := result.Val.(memory.Begun)
		return begun, result.Err
	case <-ctx.Done():
		return memory.Begun{}, ctx.Err()
	}
}

// admit asks the memory service for the turn, and drives it when it is this runner's. The
// turn is asked for even when nobody can handle its target any more: it may be known.
func (r *Runner) admit(ctx context.Context, req Request, turnID string) (memory.Begun, error) {
	flow, target, nobody := r.resolve(req.Target)
	if !r.enter() {
		return memory.Begun{}, failure.New(failure.SystemNetwork, "turn.Orchestrate", "this orchestrator is stopping; send the request again")
	}
	driving := false
	defer func() {
		if !driving {
			r.running.Done()
		}
	}()
	timeout := cmp.Or(req.Timeout, r.Timeout)
	begin := memory.Begin{
		Ref: req.ref(), TurnID: turnID, TraceID: traceID(), Fingerprint: req.fingerprint(),
		Message: conversation.User(req.Text), Lease: timeout + closeTime, Window: flow.Window, KnownOnly: nobody != nil,
	}
	begun, err := failure.Retry(ctx, func(ctx context.Context) (memory.Begun, error) { return r.Memory.BeginTurn(ctx, begin) })
	if nobody != nil && (failure.Is(err, failure.NotFound) || err == nil && begun.Found != memory.FoundClosed && begun.LeaseLeft == 0) {
		return memory.Begun{}, nobody
	}
	if err != nil || begun.Found != memory.FoundBegun {
		return begun, err
	}
	t := &turn{
		Runner: r, req: req, target: target, flow: flow, turn: begun.Turn, history: asBegun(begun),
		base: begun.Turn.Sequence, known: begun.Turn.Steps, began: time.Now(),
	}
	if t.events, err = r.Traces.Open(ctx, req.Tenant, r.record(req, target, begun.Turn), begun.Turn.Attempt > 1); err != nil {
		err = fmt.Errorf("open trace %s: %w", begun.Turn.Trace, err)
		t.giveUp(context.WithoutCancel(ctx), err)
		return begun, err
	}
	driving = true
	go func() { defer r.running.Done(); t.run(context.WithoutCancel(ctx), timeout) }()
	return begun, nil
}

// record is what is kept of the turn's trace beside its events.
func (r *Runner) record(req Request, target string, turn session.Turn) *troupev1.Trace {
	return &troupev1.Trace{
		TraceId: turn.Trace, SessionId: req.Session, TurnId: turn.ID, Turn: int32(turn.Number), RequestId: req.RequestID,
		Target: target, Text: conversation.Brief(req.Text, maxGoal), Started: timestamppb.Now(), Owner: r.Owner,
	}
}

// asBegun is the history as the turn began. What steps of a turn that is taken over have
// said since comes back with their results.
func asBegun(begun memory.Begun) []conversation.Message {
	return slices.DeleteFunc(begun.History, func(m conversation.Message) bool {
		return m.Turn == begun.Turn.Number && m.Role != conversation.RoleUser
	})
}

// resolve finds what a target names. With an error the workflow is empty but for its
// window. An agent that is not known is no reason to refuse while the registry was never
// read: it may well be there.
func (r *Runner) resolve(target string) (*workflow.Workflow, string, error) {
	const op = "turn.Orchestrate"
	flow, ok := r.Workflows.Find(target)
	switch {
	case ok:
		return flow, flow.Name, nil
	case target == "":
		return workflow.Single(""), "", failure.New(failure.NotFound, op, "target: no workflow is declared here; name an agent")
	case r.Roster.Knows(target) || r.Workflows.Names(target):
		return workflow.Single(target), target, nil
	case !r.Roster.Listed():
		return workflow.Single(""), "", failure.New(failure.SystemNetwork, op, "the registry of agents cannot be reached yet; try again")
	default:
		return workflow.Single(""), "", failure.Newf(failure.NotFound, op, "target: no workflow or agent is called %q; see ListAgents", target).With("target", target)
	}
}

// traceID is a new W3C trace id.
func traceID() string {
	id := uuid.New()
	return hex.EncodeToString(id[:])
}

// maxGoal is how many characters of the user's text records and first events quote (OC-30).
const maxGoal = 200
