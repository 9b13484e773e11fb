package samples

import (
	"context"
	"iter"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// newResearch returns the graph of the research assistant in Go: the orchestrator decides, clarification asks, research uses its
// tool, synthesis answers. In a mesh the graph is the YAML in agents/research-assistant.
func newResearch(t *testing.T, models map[string]*scripted.Model) *agent.Agent {
	t.Helper()
	search, err := tool.Func("web_search", "Searches the web.", func(_ context.Context, in struct {
		Query string `json:"query"`
	},
	) (string, error) {
		return "found " + in.Query, nil
	})
	require.NoError(t, err)
	step := func(c agent.Config) *agent.Agent {
		c.Model = models[c.Name]
		a, err := agent.New(c)
		require.NoError(t, err)
		return a
	}
	decide := step(agent.Config{Name: "decide", OutputKey: "next_agent", Instructions: "Answer RESEARCH or CLARIFICATION."})
	clarification := step(agent.Config{Name: "clarification", AsksUser: true, Instructions: "Ask one question."})
	research := step(agent.Config{Name: "research", Tools: []tool.Tool{search}, OutputKey: "final_output", OnFailure: agent.Degrade})
	synthesis := step(agent.Config{Name: "synthesis", OutputKey: "final_answer", Instructions: "Answer from: {final_output}"})
	graph, err := agent.NewFlow(agent.Config{Name: "assistant"}, []*agent.Agent{decide, clarification, research, synthesis},
		func(ctx context.Context, inv agent.Invocation) iter.Seq2[event.Event, error] {
			return func(yield func(event.Event, error) bool) {
				run := func(a *agent.Agent) (text string, ok bool) {
					for e, err := range a.Run(ctx, inv) {
						if done, isResult := e.Payload.(event.TurnResult); isResult {
							text = done.Result.Text
						}
						if !yield(e, err) || err != nil {
							return text, false
						}
					}
					return text, true
				}
				said, ok := run(decide)
				switch {
				case !ok:
				case strings.Contains(strings.ToUpper(said), "CLARIFICATION"):
					run(clarification)
				default:
					if _, ok := run(research); ok {
						run(synthesis)
					}
				}
			}
		})
	require.NoError(t, err)
	return graph
}

// Document 004: the example run, with a clarification before it. It differs in this: agents return events instead of a state, so
// the state fields are keys of the session; next_agent is what a model says, checked by the graph; the confidence is in the
// result.
//
// Req: RA-5, RA-9, RA-13, RA-14, RA-15, RA-16, RA-19
func TestLangGraph_ResearchAssistant(t *testing.T) {
	models := map[string]*scripted.Model{
		"decide":        scripted.New(scripted.Say("CLARIFICATION"), scripted.Say("RESEARCH")),
		"clarification": scripted.New(scripted.Say("Which year?")),
		"research":      scripted.New(call("1", "web_search", `{"query":"gdp 2024"}`), scripted.Say("It grew by 2 %.")),
		"synthesis":     scripted.New(scripted.Say("The economy grew by 2 % in 2024.")),
	}
	graph := newResearch(t, models)
	t.Cleanup(func() { require.NoError(t, graph.Close()) })
	s, err := local.Open(t.Context(), graph, local.Config{})
	require.NoError(t, err)
	done, err := s.Execute(t.Context(), local.Input{Text: "How did it grow?"}, nil)
	require.NoError(t, err)
	require.Equal(t, event.InputRequired, done.Reason)
	require.Equal(t, "Which year?", done.Result.Text)

	done, err = s.Execute(t.Context(), local.Input{Text: "2024"}, nil)
	require.NoError(t, err)
	require.Equal(t, "The economy grew by 2 % in 2024.", done.Result.Text)
	require.Equal(t, "Answer from: It grew by 2 %.", models["synthesis"].Requests()[0].System)
	require.Contains(t, done.Result.Observations, "Used tool: web_search\nfound gdp 2024")
	history, err := s.Messages(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, "Which year?", history[1].Text, "the question is part of the conversation")
	for _, m := range history {
		require.Empty(t, m.ToolCalls, "tool rounds stay out of the shared history")
	}
}
