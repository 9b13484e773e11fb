package worker_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// contextRecorder records the execution context that each part of a step gets.
type contextRecorder struct {
	mu   sync.Mutex
	seen map[string]execution.Context
}

func (r *contextRecorder) record(ctx context.Context, where string) {
	c, _ := execution.ContextFrom(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[where] = c
}

// handler returns a handler that records the context when an agent starts.
func (r *contextRecorder) handler(where string) hook.Handler {
	return hook.BeforeAgent(func(ctx context.Context, _ *hook.Turn) (string, error) { r.record(ctx, where); return "", nil })
}

// An agent, its handlers, its tools and its nested agents all run in the context of the turn. Each agent has its
// own task, and all share one trace and one run.
// Req: OC-10
func TestExecuteStep_PassesTheTurnContextToEveryPart(t *testing.T) {
	s := newWorkerEnv(t)
	p := &contextRecorder{seen: map[string]execution.Context{}}
	look, err := tool.Func("look", "Looks.", func(ctx context.Context, _ noArguments) (string, error) { p.record(ctx, "tool"); return "seen", nil })
	require.NoError(t, err)
	helper, err := agent.New(agent.Config{
		Name: "helper", Description: "Helps.", Handlers: []hook.Handler{p.handler("agent below")}, Tools: []tool.Tool{look},
		Model: scripted.New(scripted.Say("I help.")),
	})
	require.NoError(t, err)
	below, err := flow.AsTool(helper, flow.AsToolConfig{})
	require.NoError(t, err)
	r := s.start(t, agent.Config{
		Name: "a", Handlers: []hook.Handler{p.handler("agent")}, Tools: []tool.Tool{look, below},
		Model: scripted.New(
			scripted.Call(conversation.ToolCall{ID: "c1", Name: "look", Arguments: "{}"}),
			scripted.Call(conversation.ToolCall{ID: "c2", Name: "helper", Arguments: `{"request":"help me"}`}),
			scripted.Say("Done."),
		),
	})
	req := s.beginTurn(t, "a", "s1")
	req.UserId, req.RequestId, req.Profile, req.Metadata = "ann", "r1", "fast", map[string]string{"team": "blue"}
	req.RootTraceId = rootTrace
	_, result := readStep(t, r.execute(t.Context(), t, req))
	require.Nil(t, result.GetFailure(), "%v", result)

	require.Len(t, p.seen, 3)
	for where, c := range p.seen {
		o := c.Origin()
		require.Equal(t, req.GetTraceId(), c.TraceID(), where)
		require.Equal(t, execution.Origin{
			TraceID: req.GetTraceId(), RootTraceID: rootTrace, RequestID: "r1", Profile: "fast", UserIntent: o.UserIntent, UserID: "ann", MemoryScope: "user:ann",
			ConversationID: "s1", SessionID: "s1", Metadata: map[string]string{"team": "blue"}, Created: o.Created,
		}, o, where)
	}
	said := p.seen["agent"].Origin().UserIntent
	require.NotEmpty(t, said)
	require.Equal(t, said, p.seen["tool"].Origin().UserIntent)
	require.Equal(t, "help me", p.seen["agent below"].Origin().UserIntent)
	above, ok := p.seen["agent below"].Parent()
	require.True(t, ok)
	require.Equal(t, p.seen["agent"], above)

	// The memory service logs the run with each call of the step.
	commits := s.memoryLogs.FilterField(zap.String("method", troupev1.MemoryService_CommitStep_FullMethodName)).All()
	require.Len(t, commits, 1)
	require.Equal(t, rootTrace, commits[0].ContextMap()["root_trace_id"])
}

// rootTrace is the root trace id of the step's run.
const rootTrace = "11111111111111111111111111111111"

// The log line for a failed step contains its trace and its run.
// Req: OC-10
func TestExecuteStep_LogsTheRun(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New(scripted.Fail(errors.New("away")))})
	req := s.beginTurn(t, "a", "s1")
	req.RootTraceId = rootTrace
	_, result := readStep(t, r.execute(t.Context(), t, req))
	require.NotNil(t, result.GetFailure())
	lines := r.logs.FilterMessage("step failed").All()
	require.Len(t, lines, 1)
	require.Equal(t, req.GetTraceId(), lines[0].ContextMap()["trace"])
	require.Equal(t, rootTrace, lines[0].ContextMap()["root_trace_id"])
}
