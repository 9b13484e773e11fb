package turn

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/cursor"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// answers is what is asked for in the name of a request that answers calls that wait
// (AD-32, LP-32): the turn that goes on in the place of the one that waits, or the turn as
// which the request is known already. When there is neither, the memory service is asked
// for a turn that goes on with itself, which it never grants: what it says is the truth, a
// session that is busy included.
func (r *Runner) answers(ctx context.Context, req Request) (admission, error) {
	const op = "turn.Orchestrate"
	if req.Target != "" {
		return admission{}, failure.New(failure.UserInvalidInput, op, "target: answers go to the agents that wait for them; leave it empty")
	}
	begin := r.request(req, workflow.Single(""))
	begin.Continues = begin.TurnID
	seen, err := r.session(ctx, req.ref())
	if err != nil {
		return admission{}, err
	}
	look := begin
	look.KnownOnly = true
	known, err := r.ask(ctx, look)
	left, unsure := r.unsure.look(begin.TurnID)
	switch {
	case err == nil && unsure && left.id == known.Turn.Trace:
		a := r.directed(begin, left.target)
		a.labels = left.labels
		return a, nil
	case err == nil:
		return r.like(ctx, req, begin, known.Turn.Trace)
	case !failure.Is(err, failure.NotFound) || seen.User != req.User:
		return admission{}, err
	case len(seen.Pending) == 0:
		return admission{begin: begin, flow: workflow.Single("")}, nil
	}
	begin.Continues = seen.WaitingTurn
	if begin.Answers, err = pendingcall.CheckAnswers(seen.Pending, by(req.Answers, req.Auth.Actor), time.Now()); err != nil {
		return admission{}, err
	}
	a, err := r.like(ctx, req, begin, seen.LastTrace)
	a.pending = seen.Pending
	return a, err
}

// by are answers as their orchestrator hands them on: it alone says who gave them, and
// whether they came in time.
func by(answers []execution.Answer, actor string) []execution.Answer {
	signed := make([]execution.Answer, len(answers))
	for i, a := range answers {
		signed[i] = execution.Answer{ID: a.ID, Verdict: a.Verdict, Text: a.Text, By: actor, Sealed: a.Sealed}
	}
	return signed
}

func (r *Runner) session(ctx context.Context, ref session.Ref) (session.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	return retry.Do(ctx, func(ctx context.Context) (session.Session, error) { return r.Memory.GetSession(ctx, ref) })
}

// like has the turn handled as that of a trace was.
func (r *Runner) like(ctx context.Context, req Request, begin memory.Begin, traceID string) (admission, error) {
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	found, err := retry.Do(ctx, func(ctx context.Context) (trace.Running, error) {
		return r.Traces.Store().Load(ctx, trace.Ref{Tenant: req.Tenant, Trace: traceID})
	})
	switch {
	case failure.Is(err, failure.NotFound):
		return admission{begin: begin, flow: workflow.Single(""), nobody: errForgotten}, nil
	case err != nil:
		return admission{}, err
	}
	record := found.Record
	a := r.directed(begin, record.GetTarget())
	a.labels = labelsOf(found).after(record.GetResult(), a.flow.Budget)
	if a.flow.Chooses() {
		a.labels, err = r.inherited(ctx, trace.Ref{Tenant: req.Tenant, Trace: traceID}, a.labels)
	}
	a.since = record.GetStarted().AsTime().Add(record.GetResult().GetDuration().AsDuration())
	return a, err
}

var errNothingWaits = failure.New(failure.TurnNotOpen, "turn.Orchestrate",
	"answers: nothing waits in the session: it was answered before, or a text came instead; GetSession shows what waits")

// errForgotten is for a trace that was kept for as long as the turn could be gone on with, or
// was never stored because its orchestrator went away at once.
var errForgotten = failure.New(failure.TurnNotOpen, "turn.Orchestrate",
	"the turn cannot be gone on with: its trace is not kept, and only that says who handles it; send a text instead")

// directed has a target handle the turn.
func (r *Runner) directed(begin memory.Begin, target string) admission {
	a := admission{begin: begin}
	a.flow, a.target, a.nobody = r.resolve(target)
	a.begin.Window = a.flow.Window
	return a
}

// heard notes the answers with which a turn goes on, without what they say.
func (r *Runner) heard(ctx context.Context, req Request, a admission) {
	waited := max(0, time.Since(a.since))
	tools := map[string]string{}
	for _, p := range a.pending {
		tools[p.ID] = p.Tool
	}
	for _, answer := range a.begin.Answers {
		r.log.Info("pending call answered", zap.String("session", req.Session), zap.String("trace", a.begin.TraceID), zap.String("root_trace_id", req.Root),
			zap.String("call", answer.ID), zap.String("tool", tools[answer.ID]), zap.String("verdict", string(answer.Verdict)),
			zap.String("by", answer.By), zap.Bool("late", answer.Late), zap.Duration("waited", waited))
		r.waited.Record(ctx, waited.Seconds(), metric.WithAttributes(
			attribute.String("verdict", string(answer.Verdict)), attribute.Bool("late", answer.Late)))
	}
}

// answeredStep is the number of the step that waited for the answers of a turn; 0 when it has
// none. One step waits at a time.
func answeredStep(t session.Turn) int {
	if len(t.Answers) == 0 {
		return 0
	}
	return t.Answers[0].Step()
}

// elsewhere refuses to go on where the workflow does not lead to the agent any more whose call
// was answered: no other one gets the answer, and the journal with it.
func (t *turn) elsewhere(round []cursor.Task) error {
	if err := t.strayed(round); err != nil || len(t.results) >= t.answered {
		return err
	}
	asked := t.turn.Answers[0].Agent
	there := len(round) > 0 // and the step is still to come
	for _, task := range round {
		if task.Number == t.answered {
			there = !task.IsBranch() && (asked == "" || asked == task.Decision.Step.Agent)
		}
	}
	if there || len(round) == 0 && asked == "" {
		return nil
	}
	return failure.Newf(failure.Nondeterminism, "turn",
		"the workflow has changed while a call of agent %s waited, and does not lead there any more; say again what you want", asked)
}

// goal is what the user said last of a window: what a turn is about that brings answers.
func goal(history []conversation.Message) string {
	for _, m := range slices.Backward(history) {
		if m.Role == conversation.RoleUser {
			return m.Text
		}
	}
	return ""
}
