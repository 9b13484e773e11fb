package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// A remote turn belongs to the run of its parent. This also holds if the remote agent is called as a tool, or if
// the parent is a remote turn itself. The request carries the W3C trace of the parent.
// Req: OC-10
func TestAgent_RemoteTurnBelongsToTheRun(t *testing.T) {
	const root = "33333333333333333333333333333333"
	m := &fakeMesh{events: flowEvents()}
	remote, err := serveMesh(t, m).Agent("research", agent.Config{Description: "Finds things."})
	require.NoError(t, err)
	below, err := flow.AsTool(remote, flow.AsToolConfig{})
	require.NoError(t, err)
	boss, err := agent.New(agent.Config{Name: "boss", Tools: []tool.Tool{below}, Model: scripted.New(
		scripted.Call(conversation.ToolCall{ID: "c1", Name: "research", Arguments: `{"request":"find it"}`}), scripted.Say("Done."),
	)})
	require.NoError(t, err)
	team, err := flow.Sequence(agent.Config{Name: "team"}, remote, boss)
	require.NoError(t, err)

	inv := agent.Invocation{Step: newStep()}
	inv.Step.RootTraceID = root
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{7}, SpanID: trace.SpanID{8}})
	_, _, err = runAgent(trace.ContextWithSpanContext(t.Context(), span), team, inv)
	require.NoError(t, err)
	require.Len(t, m.requests, 2)
	for i, req := range m.requests {
		require.Equal(t, parentTraceID, req.GetParent().GetTraceId())
		require.Equal(t, root, req.GetParent().GetRootTraceId())
		require.Equal(t, span.TraceID().String(), m.spans[i])
	}
}
