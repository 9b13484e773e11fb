package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

func discardEvents(event.Event) error { return nil }

// execute runs a step of an agent.
func execute(ctx context.Context, a *agent.Agent, step execution.Step, emit func(event.Event) error) (execution.Result, []conversation.Message, error) {
	done, err := a.Execute(ctx, agent.Invocation{Step: step}, emit)
	return done.Result, done.Messages, err
}

func build(t *testing.T, c agent.Config) *agent.Agent {
	t.Helper()
	if c.Name == "" {
		c.Name = "research"
	}
	a, err := agent.New(c)
	require.NoError(t, err)
	return a
}

func lookup(t *testing.T) tool.Tool {
	t.Helper()
	type in struct {
		Query string `json:"query"`
	}
	found, err := tool.Func("lookup", "Looks something up.", func(_ context.Context, in in) (string, error) {
		switch in.Query {
		case "nothing":
			return "", nil
		case "error":
			return "", errors.New("down")
		}
		return "found " + in.Query, nil
	})
	require.NoError(t, err)
	return found
}

func lookupReply(queries ...string) scripted.Reply {
	var r scripted.Reply
	for _, q := range queries {
		r.ToolCalls = append(r.ToolCalls, conversation.ToolCall{Name: "lookup", Arguments: `{"query": "` + q + `"}`})
	}
	return r
}

func questionStep(text string) execution.Step {
	return execution.Step{Number: 2, History: []conversation.Message{conversation.User(text)}}
}

// Req: RA-1, RA-4, RA-15, RA-16
func TestAgent_CommitsOneMessageAndReturnsItsObservations(t *testing.T) {
	model := scripted.New(lookupReply("a", "nothing", "error", "b"), scripted.Say("A and B."))
	a := build(t, agent.Config{Model: model, Tools: []tool.Tool{lookup(t)}, Instructions: "Look things up."})

	result, messages, err := execute(t.Context(), a, questionStep("What is there?"), discardEvents)
	require.NoError(t, err)
	want := execution.Result{
		Step: 2, Agent: "research", Text: "A and B.",
		Observations: []string{"Used tool: lookup\nfound a", "Used tool: lookup\nfound b"},
		ToolsCalled:  []string{"lookup", "lookup", "lookup", "lookup"},
		Iterations:   2,
		Usage:        execution.Usage{ModelCalls: 2},
	}
	require.Empty(t, cmp.Diff(want, result))
	require.Empty(t, cmp.Diff([]conversation.Message{conversation.Assistant("research", "A and B.")}, messages))
	require.Equal(t, "Look things up.", model.Requests()[0].System)
}

// Req: RA-9
func TestAgent_ChoosesARouteWithoutText(t *testing.T) {
	for reply, want := range map[string]string{
		"research":                            "research",
		" CLARIFICATION\n":                    "clarification",
		"Clarification_needed: what is 'it'?": "clarification",
		"I say research, not clarification.":  "research",
		"deep-research":                       "deep-research",
		"re-research":                         "",
		"neither":                             "",
	} {
		t.Run(reply, func(t *testing.T) {
			model := scripted.New(scripted.Say(reply))
			a := build(t, agent.Config{Name: "coordinator", Model: model, Tools: []tool.Tool{lookup(t)}})
			step := questionStep("Tell me about it")
			step.Routes = []string{"clarification", "research", "deep-research"}
			result, messages, err := execute(t.Context(), a, step, func(e event.Event) error {
				require.NotEqual(t, event.TextDelta{}.Kind(), e.Kind())
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, want, result.NextAgent)
			require.Empty(t, result.Text)
			require.Empty(t, messages)
			require.Equal(t, step.Routes, model.Requests()[0].Choices)
			require.Empty(t, model.Requests()[0].Tools)
		})
	}
}

func TestAgent_FailsToChooseWhenItsModelFails(t *testing.T) {
	model := scripted.New(scripted.Fail(failure.New(failure.ResourceAPI, "test", "down")))
	a := build(t, agent.Config{Name: "coordinator", Model: model, OnFailure: agent.Degrade})
	step := questionStep("hi")
	step.Routes = []string{"research"}
	_, _, err := execute(t.Context(), a, step, discardEvents)
	require.True(t, failure.Is(err, failure.ResourceAPI), "%v", err)
}

// Req: RA-19, RA-20, RA-26
func TestAgent_ConfidenceGrowsWithObservations(t *testing.T) {
	none := 0.0
	routing := execution.Result{Step: 1, Agent: "coordinator", NextAgent: "research"}
	research := func(observations ...string) execution.Result {
		return execution.Result{Step: 2, Agent: "research", Text: "what I found", Observations: observations}
	}
	failed := research("Research failed: down")
	failed.Confidence = &none

	for name, tc := range map[string]struct {
		prior    []execution.Result
		want     any
		briefing string
	}{
		"no step before": {[]execution.Result{routing}, nil, ""},
		"none":           {[]execution.Result{routing, research()}, 0.0, "No observations available."},
		"one":            {[]execution.Result{routing, research("a")}, 0.6, "\n\na\n\n"},
		"two":            {[]execution.Result{routing, research("a", "b")}, 0.8, "\n\na\n\nb\n\n"},
		"four":           {[]execution.Result{research("a", "b", "c", "d")}, 0.95, "\n\na\n\nb\n\nc\n\nd\n\n"},
		"failed":         {[]execution.Result{failed}, 0.0, "Research failed: down"},
	} {
		t.Run(name, func(t *testing.T) {
			model := scripted.New(scripted.Say("the answer"))
			a := build(t, agent.Config{Name: "synthesis", Model: model})
			step := questionStep("What is there?")
			step.Prior = tc.prior
			result, messages, err := execute(t.Context(), a, step, discardEvents)
			require.NoError(t, err)
			require.Len(t, messages, 1)

			asked := model.Requests()[0].Messages
			require.Equal(t, conversation.User("What is there?"), asked[0])
			if tc.want == nil {
				require.Nil(t, result.Confidence)
				require.Len(t, asked, 1)
				return
			}
			require.InDelta(t, tc.want, *result.Confidence, 0)
			require.Len(t, asked, 2)
			require.Equal(t, "research", asked[1].Author)
			require.Contains(t, asked[1].Text, tc.briefing)
			require.Contains(t, asked[1].Text, "what I found")
		})
	}
}

// Req: RA-13
func TestAgent_AsksTheUserEvenWhenItsModelFails(t *testing.T) {
	model := scripted.New(scripted.Say("Which one?"), scripted.Fail(errors.New("down")))
	a := build(t, agent.Config{Name: "clarification", Model: model, AsksUser: true})
	for _, want := range []string{"Which one?", "Could you tell me more about what you would like to know?"} {
		result, messages, err := execute(t.Context(), a, questionStep("it"), discardEvents)
		require.NoError(t, err)
		require.True(t, result.InputRequired)
		require.Equal(t, want, result.Text)
		require.Equal(t, []conversation.Message{conversation.Assistant("clarification", want)}, messages)
	}
}

// Req: RA-18
func TestAgent_DegradesWithItsObservations(t *testing.T) {
	model := scripted.New(lookupReply("a"), scripted.Fail(failure.New(failure.ResourceAPI, "test", "The model is down.").Because(errors.New("secret"))))
	a := build(t, agent.Config{Model: model, Tools: []tool.Tool{lookup(t)}, OnFailure: agent.Degrade})
	var warnings []event.Warning
	result, messages, err := execute(t.Context(), a, questionStep("What is there?"), func(e event.Event) error {
		if w, ok := e.Payload.(event.Warning); ok {
			warnings = append(warnings, w)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, "I could not finish this. Research failed: The model is down.", result.Text)
	require.Equal(t, []string{"Used tool: lookup\nfound a", "Research failed: The model is down"}, result.Observations)
	require.InDelta(t, 0.0, *result.Confidence, 0)
	require.Equal(t, 2, result.Usage.ModelCalls)
	require.Nil(t, result.Failure)
	require.Len(t, messages, 1)
	require.Equal(t, []event.Warning{{Reason: agent.ReasonDegraded, Message: "Research failed: The model is down"}}, warnings)
}

// Req: RA-20
func TestAgent_DegradesToTheTextOfThePriorStep(t *testing.T) {
	a := build(t, agent.Config{Name: "synthesis", Model: scripted.New(), OnFailure: agent.Degrade})
	step := questionStep("What is there?")
	step.Prior = []execution.Result{{Agent: "research", Text: "A and B.", Observations: []string{"a", "b"}}}
	result, _, err := execute(t.Context(), a, step, discardEvents)
	require.NoError(t, err)
	require.Equal(t, "A and B.", result.Text)
	require.InDelta(t, 0.0, *result.Confidence, 0)
}

func TestAgent_DoesNotDegradeARunThatWasCancelledOrNotRead(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := build(t, agent.Config{Model: scripted.New(scripted.Say("hi")), OnFailure: agent.Degrade})
	_, messages, err := execute(ctx, a, questionStep("hi"), discardEvents)
	require.True(t, failure.Is(err, failure.UserCancelled), "%v", err)
	require.Empty(t, messages)

	broken := errors.New("the stream is gone")
	_, _, err = execute(t.Context(), a, questionStep("hi"), func(event.Event) error { return broken })
	require.ErrorIs(t, err, broken)
}

func TestAgent_StopsAfterItsTimeout(t *testing.T) {
	slow := scripted.Reply{Wait: make(chan struct{})}
	a := build(t, agent.Config{Model: scripted.New(slow), Timeout: time.Millisecond})
	_, _, err := execute(t.Context(), a, questionStep("hi"), discardEvents)
	require.True(t, failure.Is(err, failure.AgentTimeout), "%v", err)

	a = build(t, agent.Config{Model: scripted.New(slow), Timeout: time.Millisecond, OnFailure: agent.Degrade})
	result, _, err := execute(t.Context(), a, questionStep("hi"), discardEvents)
	require.NoError(t, err)
	require.Contains(t, result.Text, "longer than it may")
}

func TestAgent_RejectsAnEmptyAnswer(t *testing.T) {
	a := build(t, agent.Config{Model: scripted.New(scripted.Say(" \n"))})
	_, _, err := execute(t.Context(), a, questionStep("hi"), discardEvents)
	require.True(t, failure.Is(err, failure.AgentLogic), "%v", err)
}

func TestAgent_CutsATextThatExceedsTheLimitOfAMessage(t *testing.T) {
	long := "a" + strings.Repeat("ä", conversation.MaxMessageBytes)
	for name, c := range map[string]agent.Config{
		"of its model":          {Model: scripted.New(scripted.Reply{Deltas: []string{long[:99], long[99:], "more"}})},
		"of its model, at once": {Model: scripted.New(scripted.Say(long))},
		"of a handler":          {Model: scripted.New(scripted.Say("Hi.")), Handlers: []hook.Handler{hook.AfterAgent(func(context.Context, *hook.Turn) (string, error) { return long, nil })}},
		"of its model, with calls": {Tools: []tool.Tool{lookup(t)}, Model: scripted.New(
			scripted.Reply{Deltas: []string{long}, ToolCalls: lookupReply("a").ToolCalls}, scripted.Say("Done."))},
	} {
		t.Run(name, func(t *testing.T) {
			var reasons []string
			streamed := 0
			done, err := build(t, c).Execute(t.Context(), agent.Invocation{Step: questionStep("hi")}, func(e event.Event) error {
				switch p := e.Payload.(type) {
				case event.Warning:
					reasons = append(reasons, p.Reason)
				case event.TextDelta:
					streamed += len(p.Text)
				case event.MessageAppended:
					if p.Message.Role == conversation.RoleAssistant && len(p.Message.ToolCalls) > 0 {
						require.LessOrEqual(t, conversation.Size(p.Message), conversation.MaxMessageBytes, "its calls take room too")
					}
				}
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, []string{agent.ReasonTextCut}, reasons)
			require.LessOrEqual(t, streamed, conversation.MaxMessageBytes+len("Done."))
			if strings.HasSuffix(name, "calls") {
				require.Empty(t, done.Result.Incomplete, "the answer is complete")
				return
			}
			require.Len(t, done.Messages[len(done.Messages)-1].Text, conversation.MaxMessageBytes-1)
			require.Equal(t, name != "of a handler", done.Result.Incomplete == string(event.FinishLength))
		})
	}
}
