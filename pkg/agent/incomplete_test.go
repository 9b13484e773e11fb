package agent_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// The result of an agent says why the answer of its model may be incomplete. An agent of other agents reports what their
// answers lack.
//
// Req: LP-29
func TestAgent_ResultSaysThatItMayBeIncomplete(t *testing.T) {
	says := func(name string, finish llm.Finish) *agent.Agent {
		return build(t, agent.Config{Name: name, Model: scripted.New(scripted.Reply{Deltas: []string{"So f"}, Finish: finish})})
	}
	parallel, err := flow.Parallel(agent.Config{Name: "both"}, says("a", llm.FinishStop), says("b", llm.FinishOther))
	require.NoError(t, err)
	cutLast, err := flow.Sequence(agent.Config{Name: "cut-last"}, says("a", llm.FinishStop), says("b", llm.FinishLength))
	require.NoError(t, err)
	cutFirst, err := flow.Sequence(agent.Config{Name: "cut-first"}, says("a", llm.FinishLength), says("b", llm.FinishStop))
	require.NoError(t, err)
	var seen event.Finish
	for name, c := range map[string]struct {
		agent *agent.Agent
		want  event.Finish
	}{
		"complete":          {says("a", llm.FinishStop), ""},
		"unknown to models": {says("a", ""), ""},
		"cut":               {says("a", llm.FinishLength), event.FinishLength},
		"declined":          {says("a", llm.FinishRefusal), event.FinishFilter},
		"unknown reason":    {says("a", llm.FinishOther), event.FinishOther},
		"a question": {build(t, agent.Config{
			Name: "a", AsksUser: true, Model: scripted.New(scripted.Reply{Deltas: []string{"Wh"}, Finish: llm.FinishLength}),
		}), event.FinishLength},
		"cut before a tool": {build(t, agent.Config{Name: "a", Tools: []tool.Tool{lookup(t)}, Model: scripted.New(
			scripted.Reply{ToolCalls: lookupReply("a").ToolCalls, Finish: llm.FinishLength}, scripted.Say("All."))}), ""},
		"parallel":          {parallel, event.FinishOther},
		"last of sequence":  {cutLast, event.FinishLength},
		"first of sequence": {cutFirst, ""},
		"with a handler": {build(t, agent.Config{
			Name: "a", Model: scripted.New(scripted.Reply{Deltas: []string{"So f"}, Finish: llm.FinishLength}),
			Handlers: []hook.Handler{hook.AfterLLM(func(_ context.Context, r *hook.LLMReply) error {
				seen = r.Incomplete
				return nil
			})},
		}), event.FinishLength},
	} {
		t.Run(name, func(t *testing.T) {
			done, err := c.agent.Execute(t.Context(), agent.Invocation{Step: questionStep("hi")}, discardEvents)
			require.NoError(t, err)
			require.Equal(t, string(c.want), done.Result.Incomplete)
		})
	}
	require.Equal(t, event.FinishLength, seen, "handlers know it too")
}
