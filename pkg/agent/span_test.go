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

// The spans of an agent are children of its caller's span. The agent has one span, which contains one for each
// iteration. Model calls and tools are inside the iterations. No span contains text of the conversation.
// Req: LP-38
func TestAgent_SpansAreChildrenOfTheCallersSpan(t *testing.T) {
	recorded := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(recorded))
	ctx, caller := provider.Tracer("test").Start(t.Context(), "ExecuteStep")
	a := build(t, agent.Config{Model: scripted.New(lookupReply("secret"), scripted.Say("It is secret.")), Tools: []tool.Tool{lookup(t)}})
	_, _, err := execute(ctx, a, questionStep("What is secret?"), discardEvents)
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
