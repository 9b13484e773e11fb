// Package steps contains the checks of how a worker runs a step and commits its result.
package steps

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

const agentLogic = troupev1.FailureMode_FAILURE_MODE_AGENT_LOGIC

// Checks returns the checks of this package in the order of a report.
func Checks() []check.Check {
	return slices.Concat(stepChecks(), commitChecks(), roundChecks())
}

func stepChecks() []check.Check {
	return []check.Check{
		{
			ID: "step/announces-its-admission", Requirement: "AgentService.ExecuteStep", Run: checkStepSendsHeaderAtAdmission, Exclusive: true,
			Title: "The response header comes when the step is admitted, before its first event and long before its end.",
		},
		{
			ID: "step/sends-heartbeats", Requirement: "Heartbeat", Run: checkStepSendsHeartbeats,
			Title: "A silent step sends heartbeats: no gap is longer than 2 seconds.",
		},
		{
			ID: "step/ends-with-one-result", Requirement: "AgentService.ExecuteStep", Run: checkStepEndsWithOneResult,
			Title: "The stream ends with exactly one result, the last item, and with the status OK.",
		},
		{
			ID: "step/result-names-step-and-agent", Requirement: "StepResult", Run: checkStepResultNamesStep,
			Title: "The result has the step and the agent of the request, and the text that the agent said.",
		},
		{
			ID: "step/streams-in-order", Requirement: "AgentService.ExecuteStep", Run: checkStepStreamsInOrder,
			Title: "All text deltas arrive in the order in which the agent produced them, each with its time.",
		},
		{
			ID: "step/streams-before-the-result", Requirement: "AgentService.ExecuteStep", Run: checkStepStreamsBeforeResult,
			Title: "The text of the result is streamed as text deltas before it.",
		},
		{
			ID: "step/sends-custom-events", Requirement: "AD-37", Run: checkStepSendsCustomEvents,
			Title: "An event of a kind that the agent defines arrives before the result, with its name and its data.",
		},
		{
			ID: "step/reads-the-last-message-of-the-user", Requirement: "ConformanceService", Run: checkStepReadsLastMessage,
			Title: "The agent works on the last message of the user in the history; it repeats a text that is not a command.",
		},
		{
			ID: "step/separates-concurrent-steps", Requirement: "AgentService.ExecuteStep", Run: checkStepsAreSeparate,
			Title: "Steps that run at the same time each get their own events, result and commit.",
		},
		{
			ID: "step/failure-is-a-result", Requirement: "LC-28", Run: checkStepFailureIsAResult("fail"),
			Title: "A step that fails ends with a result that says AGENT_LOGIC, the status OK, and the instance READY; nothing is committed.",
		},
		{
			ID: "step/panic-is-a-result", Requirement: "LC-29", Run: checkStepFailureIsAResult("panic"),
			Title: "A step that panics ends with a result that says AGENT_LOGIC, the status OK, and the instance READY; nothing is committed.",
		},
		{
			ID: "step/cancellation-ends-it", Requirement: "AgentService.ExecuteStep", Run: checkStepCancellation,
			Title: "Cancelling the call ends the step within a second; the instance is READY and nothing is committed, then or later.",
		},
		{
			ID: "step/its-deadline-ends-it", Requirement: "AgentService.ExecuteStep", Run: checkStepDeadline,
			Title: "A step ends within a second when the deadline of its call passes, and nothing is committed.",
		},
		{
			ID: "step/rejects-another-agent", Requirement: "AgentService.ExecuteStep", Run: checkStepRejectsAnotherAgent,
			Title: "A step for an agent that the worker does not host is rejected with AGENT_STATE before admission.",
		},
		{
			ID: "step/rejects-invalid-requests", Requirement: "ExecuteStepRequest", Run: checkStepRejectsInvalidRequests,
			Title: "A request that breaks a rule of its message is rejected with USER_INVALID_INPUT before admission.",
		},
	}
}

func checkStepSendsHeaderAtAdmission(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{Capacity: 100}) // a cancelled step keeps its slot for a moment
	t.AnswersPromptly("the response header of a step", func() time.Duration {
		s := in.StartStep("sleep 30s").AwaitAdmission(t)
		s.Cancel()
		o, _ := s.Wait(t, "a step that was cancelled", check.AnswerLimit)
		return o.AdmittedAt.Sub(s.Began)
	})
	o := in.StartStep("sleep 1s").RequireSuccess(t, 5*time.Second)
	t.True(o.AnsweredAt.Sub(o.AdmittedAt) > check.TimingSlack, "the response header of a step of 1s", "long before its result", o.AnsweredAt.Sub(o.AdmittedAt))
}

// maxSilence is how long the stream of a step may send no item (guarantees, section 2.11).
const maxSilence = 2 * time.Second

func checkStepSendsHeartbeats(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	o := in.StartStep("sleep 3s").RequireSuccess(t, 8*time.Second)
	last := o.AdmittedAt
	for _, at := range o.ArrivalTimes {
		t.True(at.Sub(last) <= maxSilence+check.TimingSlack, "a step of 3s", "no silence above 2s", "one of "+at.Sub(last).Round(time.Millisecond).String())
		last = at
	}
}

func checkStepEndsWithOneResult(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	for _, text := range []string{"say hello", "count 3", "sleep 10ms", "own _x"} {
		in.StartStep(text).RequireSuccess(t, check.AnswerLimit)
	}
}

func checkStepResultNamesStep(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	req := in.NewRequest("say hello")
	req.Step = 2
	s := in.SendStep(t.Ctx, req, check.Session{})
	r := s.RequireSuccess(t, check.AnswerLimit).Result()
	check.Equal(t, "step of the result", s.Req.GetStep(), r.GetStep())
	check.Equal(t, "agent of the result", in.MakeResponse.GetAgent(), r.GetAgent())
	check.Equal(t, "text of the result", "hello", r.GetText())
	check.Equal(t, "next_agent of the result", "", r.GetNextAgent())
	check.Equal(t, "input_required of the result", false, r.GetInputRequired())
}

func checkStepStreamsInOrder(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	o := in.StartStep("count 200").RequireSuccess(t, 5*time.Second)
	deltas := o.Deltas()
	check.Equal(t, "text deltas of count 200", 200, len(deltas))
	for i, d := range deltas {
		check.Equal(t, fmt.Sprintf("text delta %d", i+1), fmt.Sprint(i+1), d)
	}
	check.Equal(t, "text of the result", numbersUpTo(200), o.Text())
	for _, e := range o.Events {
		t.True(e.GetTime() != nil, "time of an event", "set", "absent")
	}
}

// numbersUpTo returns the answer that the test agent must give to "count n": the numbers 1 to n without separators.
func numbersUpTo(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprint(&text, i+1)
	}
	return text.String()
}

func checkStepStreamsBeforeResult(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	o := in.StartStep("say a rose is a rose").RequireSuccess(t, check.AnswerLimit)
	check.Equal(t, "text of the result", "a rose is a rose", o.Text())
	t.True(slices.Equal(o.Deltas(), []string{"a rose is a rose"}), "text deltas", `one, "a rose is a rose"`, fmt.Sprintf("%q", o.Deltas()))
}

func checkStepSendsCustomEvents(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	o := in.StartStep(`emit order.placed {"id":7,"city":"Łódź"}`).RequireSuccess(t, check.AnswerLimit)
	var sent []*troupev1.CustomEvent
	for _, e := range o.Events {
		if c := e.GetCustom(); c != nil {
			sent = append(sent, c)
		}
	}
	check.Equal(t, "custom events", 1, len(sent))
	check.Equal(t, "name of the custom event", "order.placed", sent[0].GetName())
	var data map[string]any
	t.True(json.Unmarshal([]byte(sent[0].GetData()), &data) == nil, "data of the custom event", "a JSON object", fmt.Sprintf("%q", sent[0].GetData()))
	t.True(len(data) == 2 && data["id"] == 7.0 && data["city"] == "Łódź", "data of the custom event", `id 7 and city Łódź`, sent[0].GetData())
	check.Equal(t, "text of the result", "order.placed", o.Text())
}

func checkStepReadsLastMessage(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	for _, text := range []string{"how are you?", "saying nothing", "größer als €, 日本"} {
		check.Equal(t, "answer to "+text, text, in.RunStep(text))
	}
}

func checkStepsAreSeparate(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{Capacity: check.ConcurrentCallers})
	var sent []*check.Step
	for n := range check.ConcurrentCallers {
		sent = append(sent, in.StartStep(fmt.Sprintf("count %d", 20+n)))
	}
	for n, s := range sent {
		o := s.RequireSuccess(t, 5*time.Second)
		check.Equal(t, "answer of one of 16 steps", numbersUpTo(20+n), o.Text())
		check.Equal(t, "text deltas of one of 16 steps", 20+n, len(o.Deltas()))
		check.Equal(t, "text that one of 16 steps committed", o.Text(), t.Memory.StoredCommit(s.Req.GetSessionId()).GetResult().GetText())
	}
}

func checkStepFailureIsAResult(text string) func(*check.T) {
	return func(t *check.T) {
		in := t.StartInstance(check.InstanceSpec{})
		s := in.StartStep(text)
		o := s.RequireFailure(t, check.AnswerLimit, agentLogic)
		check.Equal(t, "text of a result that failed", "", o.Text())
		check.Equal(t, "commits of a step that failed", 0, len(t.Memory.CommitCalls(s.Req.GetSessionId())))
		check.Equal(t, "in_flight after it", 0, in.RequireState("after it", check.Ready).GetInFlight())
		check.Equal(t, "answer of the next step", "hello", in.RunStep("say hello"))
	}
}

func checkStepCancellation(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	s := in.StartStep("sleep 30s").AwaitAdmission(t)
	s.Cancel()
	s.RequireUncommitted(t, in)
}

func checkStepDeadline(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	ctx, cancel := context.WithTimeout(t.Ctx, 700*time.Millisecond)
	defer cancel()
	s := in.SendStep(ctx, in.NewRequest("sleep 30s"), check.Session{}).AwaitAdmission(t)
	_, _ = s.Wait(t, "a step whose deadline passed", check.AnswerLimit) // either side may create the status
	s.RequireUncommitted(t, in)
}

func checkStepRejectsAnotherAgent(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	req := in.NewRequest("say hello")
	req.Agent = "another-agent"
	in.SendStep(t.Ctx, req, check.Session{}).RequireNotAdmitted(t, "a step for another agent", failure.AgentState)
	check.Equal(t, "total_requests", 0, in.Metrics().GetTotalRequests())
}

func checkStepRejectsInvalidRequests(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	for _, invalid := range []struct {
		field string
		spoil func(*troupev1.ExecuteStepRequest)
	}{
		{"epoch 0", func(r *troupev1.ExecuteStepRequest) { r.Epoch = 0 }},
		{"trace_id that is no hex", func(r *troupev1.ExecuteStepRequest) { r.TraceId = "trace" }},
		{"session_id with a blank", func(r *troupev1.ExecuteStepRequest) { r.SessionId = "a b" }},
		{"turn_id empty", func(r *troupev1.ExecuteStepRequest) { r.TurnId = "" }},
		{"turn 0", func(r *troupev1.ExecuteStepRequest) { r.Turn = 0 }},
		{"step 0", func(r *troupev1.ExecuteStepRequest) { r.Step = 0 }},
		{"step 51", func(r *troupev1.ExecuteStepRequest) { r.Step = 51 }},
		{"attempt 0", func(r *troupev1.ExecuteStepRequest) { r.Attempt = 0 }},
		{"history empty", func(r *troupev1.ExecuteStepRequest) { r.History = nil }},
		{"base_sequence 0", func(r *troupev1.ExecuteStepRequest) { r.BaseSequence = 0 }},
		{"agent empty", func(r *troupev1.ExecuteStepRequest) { r.Agent = "" }},
	} {
		req := in.NewRequest("say hello")
		invalid.spoil(req)
		in.SendStep(t.Ctx, req, check.Session{}).RequireNotAdmitted(t, "a step with "+invalid.field, failure.UserInvalidInput)
	}
	check.Equal(t, "total_requests", 0, in.Metrics().GetTotalRequests())
	in.RequireState("after invalid requests", check.Ready)
}
