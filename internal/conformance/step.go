package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

const agentLogic = troupev1.FailureMode_FAILURE_MODE_AGENT_LOGIC

func stepChecks() []Check {
	return []Check{
		{
			ID: "step/announces-its-admission", Requirement: "AgentService.ExecuteStep", run: stepAnnounces, alone: true,
			Title: "The response header comes when the step is admitted, before its first event and long before its end.",
		},
		{
			ID: "step/says-that-it-is-at-work", Requirement: "Heartbeat", run: stepHeartbeats,
			Title: "A step that has nothing to say sends heartbeats: no silence is longer than 2 seconds.",
		},
		{
			ID: "step/ends-with-one-result", Requirement: "AgentService.ExecuteStep", run: stepEnds,
			Title: "The stream ends with exactly one result, the last item, and with the status OK.",
		},
		{
			ID: "step/result-names-step-and-agent", Requirement: "StepResult", run: stepNames,
			Title: "The result has the step and the agent of the request, and the text that the agent said.",
		},
		{
			ID: "step/streams-in-order", Requirement: "AgentService.ExecuteStep", run: stepStreams,
			Title: "Text deltas come in the order in which the agent made them, all of them, each with its time.",
		},
		{
			ID: "step/streams-as-it-goes", Requirement: "AgentService.ExecuteStep", run: stepStreamsAll,
			Title: "What was said is streamed as text deltas before the result.",
		},
		{
			ID: "step/reads-the-last-message-of-the-user", Requirement: "ConformanceService", run: stepReads,
			Title: "The agent works on the last message of the user in the history; a text that is no command is answered with itself.",
		},
		{
			ID: "step/keeps-steps-apart", Requirement: "AgentService.ExecuteStep", run: stepApart,
			Title: "Steps that run at the same time each get their own events, result and commit.",
		},
		{
			ID: "step/failing-is-a-result", Requirement: "LC-28", run: stepFails("fail"),
			Title: "A step that fails ends with a result that says AGENT_LOGIC, the status OK, and the instance READY; nothing is committed.",
		},
		{
			ID: "step/panicking-is-a-result", Requirement: "LC-29", run: stepFails("panic"),
			Title: "A step that throws ends with a result that says AGENT_LOGIC, the status OK, and the instance READY; nothing is committed.",
		},
		{
			ID: "step/cancelling-ends-it", Requirement: "AgentService.ExecuteStep", run: stepCancelled,
			Title: "Cancelling the call ends the step within a second; the instance is READY and nothing is committed, then or later.",
		},
		{
			ID: "step/its-deadline-ends-it", Requirement: "AgentService.ExecuteStep", run: stepDeadline,
			Title: "A step ends within a second when the deadline of its call passes, and nothing is committed.",
		},
		{
			ID: "step/refuses-another-agent", Requirement: "AgentService.ExecuteStep", run: stepAnotherAgent,
			Title: "A step for an agent that the worker does not host is refused with AGENT_STATE before admission.",
		},
		{
			ID: "step/refuses-invalid-requests", Requirement: "ExecuteStepRequest", run: stepInvalid,
			Title: "A request that breaks a rule of its message is refused with USER_INVALID_INPUT before admission.",
		},
	}
}

func stepAnnounces(t *trial) {
	in := t.ready(spec{capacity: 10})
	t.promptly("the response header of a step", func() time.Duration {
		s := in.begin("sleep 30s").isAdmitted(t)
		s.cancel()
		o, _ := s.wait(t, "a step that was cancelled", soon)
		return o.admittedAt.Sub(s.began)
	})
	o := in.begin("sleep 1s").succeeds(t, 5*time.Second)
	t.that(o.answeredAt.Sub(o.admittedAt) > slack, "the response header of a step of 1s", "long before its result", o.answeredAt.Sub(o.admittedAt))
}

// silence is what the stream of a step may be without an item (guarantees 2.11).
const silence = 2 * time.Second

func stepHeartbeats(t *trial) {
	in := t.ready(spec{})
	o := in.begin("sleep 3s").succeeds(t, 8*time.Second)
	last := o.admittedAt
	for _, at := range o.arrived {
		t.that(at.Sub(last) <= silence+slack, "a step of 3s", "no silence above 2s", "one of "+at.Sub(last).Round(time.Millisecond).String())
		last = at
	}
}

func stepEnds(t *trial) {
	in := t.ready(spec{})
	for _, text := range []string{"say hello", "count 3", "sleep 10ms", "own _x"} {
		in.begin(text).succeeds(t, soon)
	}
}

func stepNames(t *trial) {
	in := t.ready(spec{})
	req := in.request("say hello")
	req.Step = 2
	s := in.send(t.ctx, req, ledger{})
	r := s.succeeds(t, soon).result()
	equal(t, "step of the result", s.req.GetStep(), r.GetStep())
	equal(t, "agent of the result", in.made.GetAgent(), r.GetAgent())
	equal(t, "text of the result", "hello", r.GetText())
	equal(t, "next_agent of the result", "", r.GetNextAgent())
	equal(t, "input_required of the result", false, r.GetInputRequired())
}

func stepStreams(t *trial) {
	in := t.ready(spec{})
	o := in.begin("count 200").succeeds(t, 5*time.Second)
	deltas := o.deltas()
	equal(t, "text deltas of count 200", 200, len(deltas))
	for i, d := range deltas {
		equal(t, fmt.Sprintf("text delta %d", i+1), fmt.Sprint(i+1), d)
	}
	equal(t, "text of the result", upTo(200), o.text())
	for _, e := range o.events {
		t.that(e.GetTime() != nil, "time of an event", "set", "absent")
	}
}

// upTo is what the test agent answers to count n.
func upTo(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprint(&text, i+1)
	}
	return text.String()
}

func stepStreamsAll(t *trial) {
	in := t.ready(spec{})
	o := in.begin("say a rose is a rose").succeeds(t, soon)
	equal(t, "text of the result", "a rose is a rose", o.text())
	t.that(slices.Equal(o.deltas(), []string{"a rose is a rose"}), "text deltas", `one, "a rose is a rose"`, fmt.Sprintf("%q", o.deltas()))
}

func stepReads(t *trial) {
	in := t.ready(spec{})
	for _, text := range []string{"how are you?", "saying nothing", "größer als €, 日本"} {
		equal(t, "answer to "+text, text, in.says(text))
	}
}

func stepApart(t *trial) {
	in := t.ready(spec{capacity: callers})
	var sent []*step
	for n := range callers {
		sent = append(sent, in.begin(fmt.Sprintf("count %d", 20+n)))
	}
	for n, s := range sent {
		o := s.succeeds(t, 5*time.Second)
		equal(t, "answer of one of 16 steps", upTo(20+n), o.text())
		equal(t, "text deltas of one of 16 steps", 20+n, len(o.deltas()))
		equal(t, "text that one of 16 steps committed", o.text(), t.memory.committed(s.req.GetSessionId()).GetResult().GetText())
	}
}

func stepFails(text string) func(*trial) {
	return func(t *trial) {
		in := t.ready(spec{})
		s := in.begin(text)
		o := s.fails(t, soon, agentLogic)
		equal(t, "text of a result that failed", "", o.text())
		equal(t, "commits of a step that failed", 0, len(t.memory.called(s.req.GetSessionId())))
		equal(t, "in_flight after it", 0, in.isIn("after it", ready).GetInFlight())
		equal(t, "answer of the next step", "hello", in.says("say hello"))
	}
}

// endsUncommitted demands that a step that was given up has ended, and left nothing.
func (s *step) endsUncommitted(t *trial, in *instance) {
	in.becomes(ready, time.Second)
	equal(t, "in_flight after it", 0, in.status().GetInFlight())
	t.idle(200 * time.Millisecond) // for one that commits late
	equal(t, "commits of a step that was given up", 0, len(t.memory.called(s.req.GetSessionId())))
	equal(t, "answer of the next step", "hello", in.says("say hello"))
}

func stepCancelled(t *trial) {
	in := t.ready(spec{})
	s := in.begin("sleep 30s").isAdmitted(t)
	s.cancel()
	s.endsUncommitted(t, in)
}

func stepDeadline(t *trial) {
	in := t.ready(spec{})
	ctx, cancel := context.WithTimeout(t.ctx, 700*time.Millisecond)
	defer cancel()
	s := in.send(ctx, in.request("sleep 30s"), ledger{}).isAdmitted(t)
	_, _ = s.wait(t, "a step whose deadline passed", soon) // the status is made by either side
	s.endsUncommitted(t, in)
}

// refusedBeforeAdmission demands that a step was not begun.
func (s *step) refusedBeforeAdmission(t *trial, what string, mode failure.Mode) {
	o, err := s.wait(t, what, soon)
	t.refused(what, err, mode)
	t.that(!o.header, what, "no response header", "one")
}

func stepAnotherAgent(t *trial) {
	in := t.ready(spec{})
	req := in.request("say hello")
	req.Agent = "somebody-else"
	in.send(t.ctx, req, ledger{}).refusedBeforeAdmission(t, "a step for another agent", failure.AgentState)
	equal(t, "total_requests", 0, in.metrics().GetTotalRequests())
}

func stepInvalid(t *trial) {
	in := t.ready(spec{})
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
		req := in.request("say hello")
		invalid.spoil(req)
		in.send(t.ctx, req, ledger{}).refusedBeforeAdmission(t, "a step with "+invalid.field, failure.UserInvalidInput)
	}
	equal(t, "total_requests", 0, in.metrics().GetTotalRequests())
	in.isIn("after invalid requests", ready)
}
