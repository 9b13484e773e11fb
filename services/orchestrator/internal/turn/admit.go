package turn

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	gate "github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Request is one user input.
type Request struct {
	Tenant    string
	Session   string
	User      string // whose session it is; empty: nobody's
	RequestID string
	Text      string
	Files     []conversation.Attachment // beside Text, which may be empty then; without their bytes once the turn has begun
	Answers   []execution.Answer        // to calls that wait, instead of Text; the turn goes on that ended with them
	Target    string                    // workflow or agent, as the caller named it; empty: the default workflow, or that of what is answered
	Timeout   time.Duration             // 0: the workflow's, or else the runner's
	OnBusy    OnBusy                    // what becomes of it while another turn of the session is open
	From      From                      // an earlier trace to go on from
	Parent    *troupev1.Parent          // the place in another turn that asks; nil: no agent does. Its depth and root decide; of workers they are checked before (package scope)
	Auth      execution.Auth            // for the turn's steps only (LP-18): it is in nothing that is stored or told
	Above     string                    // trace of the turn that waits for this one; empty: none does
	Budget    *budget.Limits            // lowers what the workflow allows; nil: it does not
	Labels                              // for agents and tools

	passed bool // it was let in at the gate before, and found its session busy
}

func (r Request) ref() session.Ref { return session.Ref{Tenant: r.Tenant, Session: r.Session} }

func (r Request) turnID() string { return session.TurnID(r.ref(), r.RequestID) }

// fingerprint tells whether two requests with one id ask the same. Auth does not count: who
// repeats a request may have a newer token. Nor does who asks.
func (r Request) fingerprint() string {
	asked := sha256.New()
	_, _ = fmt.Fprint(asked, r.Target, "\x00", r.Text)
	for _, f := range r.Files {
		_, _ = fmt.Fprintf(asked, "\x00%q %q %x", f.Name, f.MediaType, sha256.Sum256(f.Data))
	}
	for _, a := range r.Answers {
		_, _ = fmt.Fprintf(asked, "\x00%q %q %q", a.ID, a.Verdict, a.Text)
	}
	if r.From != (From{}) {
		_, _ = fmt.Fprintf(asked, "\x00from %+v", r.From)
	}
	said := r.Labels
	said.Budget = nil
	if labels := said.stored(); labels != "" {
		_, _ = fmt.Fprint(asked, "\x00", labels)
	}
	return hex.EncodeToString(asked.Sum(nil)[:16])
}

// begin opens the turn and sets it going, or finds it. It waits at the gate, and not for the
// session.
func (r *Runner) begin(ctx context.Context, req Request) (memory.Begun, error) {
	key := req.turnID() + req.fingerprint()
	until, _ := ctx.Deadline()
	for {
		waiting, leave := r.callers.join(ctx, key)
		begun, err := join(ctx, r, key, func(ctx context.Context) (memory.Begun, error) {
			pass, begun, err := r.enterGate(ctx, waiting, until, req)
			if pass == nil {
				return begun, err
			}
			return r.admit(ctx, req, pass)
		})
		leave()
		if !errors.Is(err, errLeft) || ctx.Err() != nil {
			return begun, err
		}
	}
}

// join has concurrent calls for one thing done once. It goes on when its callers leave, and
// the runner does not close before it has ended.
func join[T any](ctx context.Context, r *Runner, key string, do func(context.Context) (T, error)) (T, error) {
	flight := r.flights.DoChan(key, func() (_ any, err error) {
		if !r.enter() {
			return nil, errStopping
		}
		defer r.running.Done()
		defer panics.Recover("turn.Orchestrate", &err)
		return do(context.WithoutCancel(ctx))
	})
	select {
	case result := <-flight:
		value, _ := result.Val.(T)
		return value, result.Err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

var errStopping = failure.New(failure.SystemNetwork, "turn.Orchestrate", "this orchestrator is stopping; send the request again")

// admit asks the memory service for the turn, and drives it when it is this runner's. The
// turn is asked for even when nobody can handle its target any more: it may be known. The pass
// is ended with the turn, or here when there is none.
func (r *Runner) admit(ctx context.Context, req Request, pass *gate.Pass) (memory.Begun, error) {
	driven := false
	defer func() {
		if !driven {
			pass.End(false)
		}
	}()
	a, err := r.admission(ctx, req)
	if err != nil {
		return memory.Begun{}, err
	}
	allowed, err := req.allowance(a)
	if err != nil {
		return memory.Begun{}, err
	}
	req.Labels = req.or(a.labels)
	req.Labels.Budget = allowed.kept(a.flow.Budget)
	ctx = rpc.InRun(ctx, req.Root) // of one that begins a run there is none before it has begun
	a.begin.KnownOnly = a.nobody != nil
	if left, ok := r.unsure.take(a.begin.TurnID); ok {
		a.begin.TraceID = left.id
	}
	begun, err := r.ask(ctx, a.begin)
	r.unsure.note(a, err)
	if a.nobody != nil && (failure.Is(err, failure.NotFound) || err == nil && begun.Found != memory.FoundClosed && begun.LeaseLeft == 0) {
		return memory.Begun{}, a.nobody
	}
	if a.begin.Continues == a.begin.TurnID && failure.Is(err, failure.TurnNotOpen) {
		err = errNothingWaits
	}
	if a.begin.Resumes != "" && failure.Is(err, failure.TurnNotOpen) {
		err = goneOn(req.From.Trace)
	}
	if err != nil || begun.Found != memory.FoundBegun {
		return begun, err
	}
	if len(req.Answers) > 0 {
		req.Text = goal(begun.History)
		r.heard(ctx, req, a)
	}
	if req.From != (From{}) {
		req.Text = cmp.Or(a.text, goal(begun.History))
		// The store has it now, also for who takes the turn over.
		a.begin.Resumes, a.begin.Inherited, a.begin.Copy = "", nil, nil
	}
	timeout := cmp.Or(req.Timeout, a.flow.Timeout, r.Timeout)
	// From here on the bytes are the memory service's, also for who takes the turn over.
	req.Files = attachments(begun)
	a.begin.Message.Attachments = req.Files
	t := r.driver(req, a, begun, pass)
	t.timeout = timeout
	if err := t.open(ctx); err != nil {
		r.unsure.note(a, err)
		r.seats.ended(t)
		return begun, err
	}
	driven = true
	r.running.Go(func() { t.run(ctx, timeout, timeout) })
	return begun, nil
}

// driver is a turn that is this runner's to drive.
func (r *Runner) driver(req Request, a admission, begun memory.Begun, pass *gate.Pass) *turn {
	allowed := req.allowed(a.flow.Budget)
	t := &turn{
		Runner: r, log: r.log, pass: pass, req: req, begin: a.begin, target: a.target, flow: a.flow, turn: begun.Turn, history: begun.History,
		base: begun.Turn.Sequence, known: begun.Turn.Steps, answered: answeredStep(begun.Turn), resumed: begun.Turn.Attempt > 1, recorded: begun.Recorded,
		redo: a.redo, began: time.Now(), cancel: make(chan error, 1), over: make(chan struct{}), allowed: allowed, width: allowed.Limits.FanOut,
	}
	r.seats.drives(t)
	return t
}

// admission is what becomes of a request, as far as that is known before its turn begins.
type admission struct {
	begin  memory.Begin
	flow   *workflow.Workflow
	target string // what handles it
	nobody error  // why nothing can; nil: something does

	pending []execution.Pending // calls that waited, which the request answers
	since   time.Time           // since when they did
	labels  Labels              // of the turn that waited, or of the earlier trace

	text string         // that a fork begins with
	redo map[int]string // agents of the steps that failed, by number, of a turn that goes on with one that did
}

func (r *Runner) admission(ctx context.Context, req Request) (admission, error) {
	if len(req.Answers) > 0 {
		return r.answers(ctx, req)
	}
	if req.From != (From{}) {
		return r.from(ctx, req)
	}
	flow, target, nobody := r.resolve(req.Target)
	return admission{begin: r.request(req, flow), flow: flow, target: target, nobody: nobody}, nil
}

// request is what the memory service is asked for.
func (r *Runner) request(req Request, flow *workflow.Workflow) memory.Begin {
	begin := memory.Begin{
		Ref: req.ref(), User: req.User, TurnID: req.turnID(), TraceID: traceID(), Fingerprint: req.fingerprint(),
		Lease: lease, Reserve: reserve, Window: flow.Window,
	}
	if len(req.Answers) == 0 && req.From == (From{}) {
		begin.Message = conversation.User(req.Text)
		begin.Message.Attachments = req.Files
		begin.Message.Untrusted = req.Parent.GetUntrusted()
	}
	return begin
}

func (r *Runner) ask(ctx context.Context, begin memory.Begin) (memory.Begun, error) {
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	if begin.KnownOnly {
		begin.Message.Attachments = nil // nothing is stored
	}
	return retry.Do(ctx, func(ctx context.Context) (memory.Begun, error) { return r.Memory.BeginTurn(ctx, begin) })
}

// open opens the trace of a turn that was begun. A turn whose trace cannot be opened is
// failed, so that its session does not wait for the lease to run out; unless the store is
// only away: then the turn is left as it is, for the next who asks.
func (t *turn) open(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	t.events, err = t.Traces.Open(ctx, t.claim(), t.turn.Attempt > 1)
	if err == nil {
		t.opened()
		t.recalled()
		return nil
	}
	err = fmt.Errorf("open trace %s: %w", t.turn.Trace, err)
	if failure.Is(err, failure.SystemNetwork, failure.SystemTimeout) || ctx.Err() != nil {
		return err
	}
	if _, failErr := t.fail(ctx, session.OutcomeFailed, err); failErr != nil {
		t.log.Error("turn not closed; its lease will run out", zap.String("trace", t.turn.Trace), zap.Error(failErr))
	}
	return err
}

// opened learns from the trace what the owners before told.
func (t *turn) opened() {
	t.log, t.told = t.log.With(zap.String("root_trace_id", t.events.Root())), t.events.Told()
	if !t.events.Empty() {
		t.order.after(t.events.Stage())
		t.tookOver()
	}
	t.learn()
}

// claim is with what the turn's trace is opened.
func (t *turn) claim() trace.Claim {
	return trace.Claim{
		Tenant: t.req.Tenant, Record: t.record(t.req, t.target, t.turn),
		Terms: trace.Terms{
			User: t.req.User, Fingerprint: t.begin.Fingerprint, TurnEpoch: t.turn.Epoch, Timeout: t.timeout,
			Credentials: t.lacking || !t.req.Auth.IsZero(), Labels: t.req.stored(), Above: t.req.Above,
		},
	}
}

// record is what is kept of the turn's trace beside its events.
func (r *Runner) record(req Request, target string, turn session.Turn) *troupev1.Trace {
	return &troupev1.Trace{
		TraceId: turn.Trace, SessionId: req.Session, TurnId: turn.ID, Turn: int32(turn.Number), RequestId: req.RequestID,
		Target: target, Text: conversation.Brief(req.Text, maxGoal), Started: timestamppb.Now(), Owner: r.Owner,
		Parent: req.Parent, ForkedFrom: req.From.proto(), RootTraceId: cmp.Or(req.Root, turn.Trace),
	}
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
	case !r.Roster.IsFilled():
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
