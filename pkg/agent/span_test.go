package agent_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// What an agent does is spans below that of its caller: the agent, in it each iteration, and in
// that its model call and its tools. None has a word of what was said.
//
// Req: LP-38
func TestAgent_IsTracedBelowItsCaller(t *testing.T) {
	recorded := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(recorded))
	ctx, caller := provider.Tracer("test").Start(t.Context(), "ExecuteStep")
	a := build(t, agent.Config{Model: scripted.New(look("secret"), scripted.Say("It is secret.")), Tools: []tool.Tool{lookup(t)}})
	_, _, err := execute(ctx, a, question("What is secret?"), quiet)
	require.NoError(t, err)
	caller.End()

	var names []string
	parents := map[string]string{}
	for _, s := range recorded.Ended() {
		names = append(names, s.Name())
		for _, p := range recorded.Ended() {
			if s.Parent().SpanID() == p.SpanContext().SpanID() {
				parents[s.Name()] = p.Name()
			}
		}
		for _, kv := range s.Attributes() {
			require.NotContains(t, kv.Value.String(), "secret")
		}
	}
	model, invoked, round := "generate_content "+scripted.Name, "invoke_agent research", "iteration"
	require.Equal(t, []string{model, "execute_tool lookup", round, model, round, invoked, "ExecuteStep"}, names)
	require.Equal(t, map[string]string{model: round, "execute_tool lookup": round, round: invoked, invoked: "ExecuteStep"}, parents)
}
