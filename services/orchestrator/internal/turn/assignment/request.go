package assignment

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/publish"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// maxDescription is the maximum length, in characters, of an agent's description in the request to a planner.
const maxDescription = 500

// StepRequest returns the request that an instance receives for an attempt.
func (t *Turn) StepRequest(work context.Context, a Attempt) (*troupev1.ExecuteStepRequest, error) {
	step := a.Task.Decision.Step
	req := &troupev1.ExecuteStepRequest{
		TraceId: t.Turn.Trace, Tenant: t.Request.Tenant, SessionId: t.Request.Session, TurnId: t.Turn.ID, Turn: int32(t.Turn.Number),
		Step: int32(a.Origin.Number), Attempt: int32(a.Origin.Attempt), Epoch: t.Lease.Epoch(), Agent: step.Agent,
		History: wire.MessagesToProto(a.Conversation.History), BaseSequence: a.Conversation.LastSequence,
		HasRounds: slices.Contains(a.Conversation.Agents, step.Agent), Last: step.End, Silent: a.Task.IsBranch(),
		Auth: wire.AuthToProto(t.Request.Auth), UserId: t.Request.User,
		OriginTurnId: t.Turn.OriginTurnID, Profile: t.Request.Profile, Metadata: t.Request.Metadata, RequestId: t.Request.RequestID,
		RootTraceId: t.Events.RootTrace(), Budget: t.attemptBudget(a), Recorded: t.KeepsJournals,
		MaxIterations: t.Request.MaxIterations,
	}
	req.Answers = wire.AnswersToProto(t.answersFor(a.Origin.Number))
	for _, number := range a.Task.PriorSteps {
		req.Prior = append(req.Prior, wire.ResultToProto(a.Conversation.Results[number-1]))
	}
	for _, name := range step.Routes {
		req.Routes = append(req.Routes, t.Flow.Steps[name].Agent)
	}
	t.addTask(work, req, step, a.Conversation.History)
	return req, t.issueCredential(work, req)
}

// answersFor returns the answers to calls of a step.
func (t *Turn) answersFor(step int) (answers []execution.Answer) {
	for _, a := range t.Turn.Answers {
		if a.Step() == step {
			answers = append(answers, a)
		}
	}
	return answers
}

// addTask adds the task of the step to a request (contract OC-28).
func (t *Turn) addTask(work context.Context, req *troupev1.ExecuteStepRequest, step workflow.Step, history []conversation.Message) {
	req.Goal = goalText(t.Request.Text, history)
	req.Task = cmp.Or(step.Task, req.GetGoal())
	req.ExpectedOutput, req.Constraints = step.Expects, step.Constraints
	req.Priority, req.Tags = t.Request.Priority, t.Request.Tags
	if deadline, ok := work.Deadline(); ok {
		if left := time.Until(deadline); left > 0 { // otherwise the deadline has passed and the call will not start
			req.Timeout = durationpb.New(left)
		}
	}
	if p := step.Plan; p != nil {
		req.Plan = &troupev1.PlanRequest{Max: int32(p.MaxTasks), Parallel: p.Parallel}
		for _, agent := range p.Agents {
			req.Plan.Agents = append(req.Plan.Agents, &troupev1.PlanAgent{
				Name: agent, Description: conversation.Excerpt(t.Workflows.Description(agent), maxDescription),
			})
		}
	}
}

// goalText returns the user's goal, as the first event of the trace quotes it: the last text, or the names of
// files that came without one.
func goalText(text string, history []conversation.Message) string {
	if text := conversation.Excerpt(text, publish.MaxText); text != "" {
		return text
	}
	for _, m := range slices.Backward(history) {
		if m.Role != conversation.RoleUser || m.Author != "" {
			continue
		}
		names := []string{"files:"}
		for _, a := range m.Attachments {
			names = append(names, a.Name)
		}
		return cmp.Or(conversation.Excerpt(m.Text, publish.MaxText), conversation.Excerpt(strings.Join(names, " "), publish.MaxText))
	}
	return "continue the conversation" // the user's message is no longer in the window
}

// RoutingRequest returns the view of this turn that the routing authority gets for a step.
func (t *Turn) RoutingRequest(step workflow.Step) selection.Request {
	return NewRoutingRequest(t.Request, t.Turn.Trace, step)
}

// NewRoutingRequest returns the view of a turn that the routing authority gets for each decision (contract OC-14).
func NewRoutingRequest(req request.Request, traceID string, step workflow.Step) selection.Request {
	return selection.Request{
		TraceID: traceID, Profile: req.ProfileOrDefault(), Goal: conversation.Excerpt(req.Text, publish.MaxText), Task: step.Name,
		Metadata: req.Metadata, Needs: req.Needs, Parent: req.Parent.GetTraceId(),
	}
}

// InstancePolicy returns the policy that selects the instance for a step. A credential that comes with an answer
// is sealed to a key in the RAM of one instance (LP-37). That instance gets the step if possible, because any
// other instance would have to ask for the credential again. A step with a fixed instance keeps that instance.
func (t *Turn) InstancePolicy(number int, policy selection.Policy) selection.Policy {
	if policy.Strategy == selection.Manual {
		return policy
	}
	for _, a := range t.answersFor(number) {
		if keeper := broker.InstanceFromKeyID(a.AuthID); a.Sealed != "" && keeper != "" {
			policy.Fallback = cmp.Or(policy.Strategy, selection.RoundRobin)
			policy.Strategy, policy.Instance, policy.NamedBy = selection.Manual, keeper, "the credential of an answer"
			return policy
		}
	}
	return policy
}

// issueCredential issues the credential with which the worker of an attempt acts in this turn only (guarantee
// S6). The credential is valid until the step is committed. An attempt that replaces a lost one has another epoch
// and another credential.
func (t *Turn) issueCredential(work context.Context, req *troupev1.ExecuteStepRequest) (err error) {
	deadline, _ := work.Deadline()
	req.Credential, err = t.Credentials.Issue(turncred.Turn{
		Agent: req.GetAgent(), Tenant: t.Request.Tenant, Session: t.Request.Session, ID: t.Turn.ID, User: t.Request.User, Trace: t.Turn.Trace,
		Epoch: req.GetEpoch(), Step: int(req.GetStep()),
		Root: req.GetRootTraceId(), Level: int(req.GetBudget().GetLevel()), Budget: wire.LimitsFromProto(req.GetBudget()),
	}, deadline)
	if req.GetCredential() != "" {
		t.credential.Do(func() {
			t.Audit.Record(audit.Entry{
				Kind: audit.Credential, Actor: string(identity.Orchestrator), Action: "issue", Object: t.Request.Session, Result: "ok",
				Facts: map[string]string{"tenant": t.Request.Tenant, "turn": t.Turn.ID, "trace": t.Turn.Trace, "agent": req.GetAgent()},
			})
		})
	}
	return err
}
