package worker_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// credentialRecorder is a model and a tool function. It records the credential in the context of each call.
type credentialRecorder struct {
	llm.Model
	mu          sync.Mutex
	seen        []string
	lastContext context.Context //nolint:containedctx // a faulty tool might keep the context, too
}

func (c *credentialRecorder) record(ctx context.Context, who string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	auth, _ := execution.AuthFrom(ctx)
	token, ok := execution.Credential(ctx, "github")
	c.seen = append(c.seen, fmt.Sprintf("%s: %q %s %t", who, auth.Actor, token.Reveal(), ok))
	c.lastContext = context.WithoutCancel(ctx)
}

// takeRecorded returns what was recorded since the last call, and the context of the latest call.
func (c *credentialRecorder) takeRecorded() (seen []string, kept context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, c.seen = c.seen, nil
	return seen, c.lastContext
}

// Generate implements llm.Model.
func (c *credentialRecorder) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	c.record(ctx, "model")
	return c.Model.Generate(ctx, req)
}

// Req: LP-18
func TestExecuteStep_DropsCredentialsWhenTheStepEnds(t *testing.T) {
	s := newWorkerEnv(t)
	call := scripted.Call(conversation.ToolCall{ID: "c1", Name: "look", Arguments: "{}"})
	w := &credentialRecorder{Model: scripted.New(
		call, scripted.Say("Done."), call, scripted.Say("Done."),
		scripted.Fail(failure.New(failure.ResourceAPI, "test", "no")),
	)}
	look, err := tool.Func("look", "Looks.", func(ctx context.Context, _ noArguments) (string, error) {
		w.record(ctx, "tool")
		auth, _ := execution.AuthFrom(ctx)
		return fmt.Sprintf("I was given %+v", auth.Credentials), nil
	})
	require.NoError(t, err)
	r := s.start(t, agent.Config{Name: "a", Model: w, Tools: []tool.Tool{look}})

	step := func(sessionID string, auth *troupev1.Auth) (seen []string, _ *troupev1.StepResult) {
		req := s.beginTurn(t, "a", sessionID)
		req.Auth = auth
		events, result := readStep(t, r.execute(t.Context(), t, req))
		require.NotContains(t, fmt.Sprint(events, result), "CANARY")
		seen, kept := w.takeRecorded()
		awaitCondition(t, "it is forgotten", func() bool { _, ok := execution.AuthFrom(kept); return !ok })
		return seen, result
	}
	alice := &troupev1.Auth{Actor: "alice", Credentials: map[string]string{"github": "CANARY"}}
	seen, result := step("s1", alice)
	require.Nil(t, result.GetFailure())
	require.Contains(t, fmt.Sprint(result.GetObservations()), "map[github:[REDACTED]]")
	require.Equal(t, []string{`model: "alice" CANARY true`, `tool: "alice" CANARY true`, `model: "alice" CANARY true`}, seen)
	seen, result = step("s2", nil)
	require.Nil(t, result.GetFailure())
	require.Equal(t, []string{`model: ""  false`, `tool: ""  false`, `model: ""  false`}, seen)
	_, result = step("s3", alice)
	require.NotNil(t, result.GetFailure())

	require.NotEmpty(t, r.logs.FilterMessage("step failed").All())
	for _, line := range r.logs.All() {
		require.NotContains(t, fmt.Sprint(line.Message, line.ContextMap()), "CANARY")
	}
}
