package admit

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/assignment"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/compact"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/decide"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/run"
)

// Begin asks the memory service for the turn of a request that has a permit. It starts driving the turn if this
// orchestrator has begun it. Begin asks even when no workflow or agent can handle the target any more, because the
// turn may already exist. The permit is released when the turn ends, or here if there is no turn to drive.
func (a *Admitter) Begin(ctx context.Context, req request.Request, permit *admission.Permit) (memory.BeginResult, error) {
	started := false
	defer func() {
		if !started {
			permit.Release(false)
		}
	}()
	decided, err := a.Decider.Decide(ctx, req)
	if err != nil {
		return memory.BeginResult{}, err
	}
	if req, err = withInheritedLabels(req, decided); err != nil {
		return memory.BeginResult{}, err
	}
	ctx = rpc.WithRun(ctx, req.Root) // empty for a turn that begins a run, until it has begun
	begun, err := a.beginTurn(ctx, req, &decided)
	if err != nil || begun.Status != memory.StatusBegun {
		return begun, err
	}
	if req.IsAnswer() {
		a.logAnswers(ctx, req, decided)
	}
	if err := a.Driver.Start(ctx, a.toBegunTurn(req, decided, begun, permit)); err != nil {
		a.Decider.InDoubt.Record(decided, err)
		return begun, err
	}
	started = true
	return begun, nil
}

// withInheritedLabels returns the request with the labels of the turn that it continues, and with the budget of
// its own turn.
func withInheritedLabels(req request.Request, decided decide.Admission) (request.Request, error) {
	allowed, err := req.Allowance(decided.Flow.Budget, decided.Labels)
	if err != nil {
		return req, err
	}
	req.Ancestors = req.Parent.GetAncestors()
	req.Labels = req.WithDefaultsFrom(decided.Labels)
	req.Labels.Budget = allowed.NilIfDefault(decided.Flow.Budget)
	if decided.Case == decide.NewTurn {
		err = req.CheckAncestry(decided.Target)
	}
	return req, err
}

// beginTurn asks the memory service for the turn. If an earlier attempt to begin it is in doubt, it uses the trace
// of that attempt.
func (a *Admitter) beginTurn(ctx context.Context, req request.Request, decided *decide.Admission) (memory.BeginResult, error) {
	decided.Begin.LookupOnly = decided.TargetErr != nil
	if tried, ok := a.Decider.InDoubt.Take(decided.Begin.TurnID); ok {
		decided.Begin.TraceID = tried.Trace
	}
	begun, err := a.Decider.BeginTurn(ctx, decided.Begin)
	a.Decider.InDoubt.Record(*decided, err)
	abandoned := err == nil && begun.Status != memory.StatusClosed && begun.LeaseLeft == 0
	switch {
	case decided.TargetErr != nil && (failure.Is(err, failure.NotFound) || abandoned):
		return memory.BeginResult{}, decided.TargetErr
	case decided.Begin.Predecessor.Continues == decided.Begin.TurnID && failure.Is(err, failure.TurnNotOpen):
		return begun, decide.ErrNothingPending
	case decided.Begin.Predecessor.Resumes != "" && failure.Is(err, failure.TurnNotOpen):
		return begun, decide.NewSessionMovedError(req.Source.Trace)
	}
	return begun, err
}

// toBegunTurn returns the begun turn in the form that the driver needs. It omits files and inherited results,
// because the memory service has already stored them and must not receive them again.
func (a *Admitter) toBegunTurn(req request.Request, decided decide.Admission, begun memory.BeginResult, permit *admission.Permit) run.BegunTurn {
	if req.IsAnswer() {
		req.Text = lastUserText(begun.History)
	} else if req.Source != (request.Source{}) {
		req.Text = cmp.Or(decided.ForkText, lastUserText(begun.History))
		decided.Begin.Predecessor.Resumes, decided.Begin.Predecessor.Inherited, decided.Begin.Predecessor.Copy = "", nil, nil
	}
	req.Files = StoredAttachments(begun)
	decided.Begin.Message.Attachments = req.Files
	timeout := cmp.Or(req.Timeout, decided.Flow.Timeout, a.Timeout)
	return run.BegunTurn{
		Request: req, Begin: decided.Begin, Turn: begun.Turn, Target: decided.Target, Flow: decided.Flow,
		Conversation: assignment.Conversation{History: begun.History, LastSequence: begun.Turn.Sequence, Agents: begun.Agents},
		Rerun:        decided.Rerun, KeepsJournals: begun.KeepsJournals, Permit: permit, Began: time.Now(), Timeout: timeout, TimeLeft: timeout,
		Growth: compact.NewGrowth(begun),
	}
}

// StoredAttachments returns the files of the turn's message, as the session has stored them.
func StoredAttachments(begun memory.BeginResult) []conversation.Attachment {
	for _, m := range begun.History {
		if m.Role == conversation.RoleUser && m.Author == "" && m.Turn == begun.Turn.Number {
			return m.Attachments
		}
	}
	return nil
}

// lastUserText returns the last text of the user in a window. It is the goal of a turn whose request has no
// text.
func lastUserText(history []conversation.Message) string {
	for _, m := range slices.Backward(history) {
		if m.Role == conversation.RoleUser {
			return m.Text
		}
	}
	return ""
}

// logAnswers logs and counts the answers with which a turn continues, without their texts.
func (a *Admitter) logAnswers(ctx context.Context, req request.Request, decided decide.Admission) {
	waited := max(0, time.Since(decided.PendingSince))
	tools := map[string]string{}
	for _, p := range decided.Pending {
		tools[p.ID] = p.Tool
	}
	for _, answer := range decided.Begin.Predecessor.Answers {
		a.log.Info("pending call answered",
			zap.String("session", req.Session), zap.String("trace", decided.Begin.TraceID), zap.String("root_trace_id", req.Root),
			zap.String("call", answer.ID), zap.String("tool", tools[answer.ID]), zap.String("verdict", string(answer.Verdict)),
			zap.String("by", answer.By), zap.Bool("late", answer.Late), zap.Duration("waited", waited))
		a.answerWait.Record(ctx, waited.Seconds(), metric.WithAttributes(
			attribute.String("verdict", string(answer.Verdict)), attribute.Bool("late", answer.Late)))
	}
}
