package plugin_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/plugin"
	"github.com/troupe-dev/troupe/pkg/tool"
)

func limitedAgent(t *testing.T, c plugin.RateLimit, script ...scripted.Reply) *agent.Agent {
	t.Helper()
	limits, err := plugin.NewRateLimit(c)
	require.NoError(t, err)
	look, err := tool.Func("look", "Looks.", func(context.Context, struct{}) (string, error) { return "seen", nil })
	require.NoError(t, err)
	a, err := agent.New(agent.Config{
		Name: "helper", Model: scripted.New(script...), Tools: []tool.Tool{look}, Plugins: []hook.Plugin{limits}, Timeout: time.Hour,
	})
	require.NoError(t, err)
	return a
}

func newReplies(n int) (all []scripted.Reply) {
	for range n {
		all = append(all, scripted.Say("ok"))
	}
	return all
}

// runTimed runs a turn, and returns how long it took.
func runTimed(ctx context.Context, a *agent.Agent, inv agent.Invocation, session string) (time.Duration, []event.ToolFinished, error) {
	started := time.Now()
	inv.Step.SessionID, inv.Step.History = session, []conversation.Message{conversation.User("go")}
	var calls []event.ToolFinished
	_, err := a.Execute(ctx, inv, func(e event.Event) error {
		if p, ok := e.Payload.(event.ToolFinished); ok {
			calls = append(calls, p)
		}
		return nil
	})
	return time.Since(started), calls, err
}

// Req: CO-7
func TestRateLimit_DelaysCalls(t *testing.T) {
	for name, tc := range map[string]struct {
		limit plugin.CallLimit
		waits map[string][]time.Duration // by session, one after the other
	}{
		"of a session": {plugin.CallLimit{Session: 2}, map[string][]time.Duration{
			"a": {0, 0, 30 * time.Second, 30 * time.Second}, "b": {0, 0, 30 * time.Second},
		}},
		"of the agent": {plugin.CallLimit{Agent: 3}, map[string][]time.Duration{"a": {0, 0, 0, 20 * time.Second, 20 * time.Second}}},
		"of both":      {plugin.CallLimit{Agent: 6, Session: 1}, map[string][]time.Duration{"a": {0, time.Minute}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := limitedAgent(t, plugin.RateLimit{ModelCalls: tc.limit, Wait: time.Minute}, newReplies(10)...)
				for session, waits := range tc.waits {
					for _, want := range waits {
						took, _, err := runTimed(t.Context(), a, agent.Invocation{}, session)
						require.NoError(t, err)
						require.InDelta(t, want, took, float64(time.Millisecond))
					}
				}
			})
		})
	}
}

func TestRateLimit_SharesTheAgentsLimitBetweenSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := limitedAgent(t, plugin.RateLimit{ModelCalls: plugin.CallLimit{Agent: 1}}, newReplies(2)...)
		_, _, err := runTimed(t.Context(), a, agent.Invocation{}, "a")
		require.NoError(t, err)
		_, _, err = runTimed(t.Context(), a, agent.Invocation{}, "b")
		require.True(t, failure.Is(err, failure.PolicyRateLimit), "%v", err)
	})
}

func TestRateLimit_RejectsCallsThatWouldWaitTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := limitedAgent(t, plugin.RateLimit{ModelCalls: plugin.CallLimit{Session: 1}}, newReplies(3)...)
		_, _, err := runTimed(t.Context(), a, agent.Invocation{}, "a")
		require.NoError(t, err)
		<-time.After(5 * time.Second)
		for range 3 { // a rejected call does not make later calls wait longer
			took, _, err := runTimed(t.Context(), a, agent.Invocation{}, "a")
			require.True(t, failure.Is(err, failure.PolicyRateLimit), "%v", err)
			require.ErrorContains(t, err, "try again in 55s")
			require.Zero(t, took)
			received := grpcfailure.FromProto(grpcfailure.ToProto(err)) // by the caller
			require.True(t, received.Mode.Retryable())
			after, err := time.ParseDuration(received.Facts["retry_after"])
			require.NoError(t, err)
			require.InDelta(t, 55*time.Second, after, float64(time.Millisecond))
		}
		<-time.After(55 * time.Second)
		_, _, err = runTimed(t.Context(), a, agent.Invocation{}, "a")
		require.NoError(t, err)
	})
}

func TestRateLimit_FailsATool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		look := conversation.ToolCall{Name: "look"}
		a := limitedAgent(t, plugin.RateLimit{ToolCalls: plugin.CallLimit{Session: 2}, Wait: time.Second}, scripted.Call(look, look, look),
			scripted.Say("done"))
		_, calls, err := runTimed(t.Context(), a, agent.Invocation{}, "a")
		require.NoError(t, err, "the turn continues")
		require.Equal(t, []event.ToolStatus{event.ToolSuccess, event.ToolSuccess, event.ToolError},
			[]event.ToolStatus{calls[0].Status, calls[1].Status, calls[2].Status})
		require.Equal(t, string(failure.PolicyRateLimit), calls[2].ErrorType)
		require.Contains(t, calls[2].Result, "there were too many tool calls; try again in 30s")
	})
}

// Req: CO-63
func TestRateLimit_DoesNotDelayAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := limitedAgent(t, plugin.RateLimit{ModelCalls: plugin.CallLimit{Session: 1}, Wait: time.Minute}, newReplies(2)...)
		_, _, err := runTimed(t.Context(), a, agent.Invocation{}, "a")
		require.NoError(t, err)
		stop, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		took, _, err := runTimed(t.Context(), a, agent.Invocation{Stop: stop}, "a")
		require.NoError(t, err, "a turn that is stopped has an answer")
		require.Equal(t, time.Second, took)

		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		took, _, err = runTimed(ended, a, agent.Invocation{}, "a")
		require.True(t, failure.Is(err, failure.AgentTimeout), "%v", err)
		require.Equal(t, time.Second, took)

		took, _, err = runTimed(t.Context(), a, agent.Invocation{}, "a")
		require.NoError(t, err)
		require.InDelta(t, 58*time.Second, took, float64(time.Millisecond), "a call that gave up returned its reservation")
	})
}

func TestRateLimit_RejectsInvalidSettings(t *testing.T) {
	for want, c := range map[string]plugin.RateLimit{
		"ModelCalls.Agent is -1":    {ModelCalls: plugin.CallLimit{Agent: -1}},
		"ToolCalls.Session is -2":   {ToolCalls: plugin.CallLimit{Session: -2}},
		"Wait is -1s":               {ToolCalls: plugin.CallLimit{Session: 2}, Wait: -time.Second},
		"ModelCalls and ToolCalls ": {},
	} {
		_, err := plugin.NewRateLimit(c)
		require.True(t, failure.Is(err, failure.AgentValidation))
		require.ErrorContains(t, err, want)
	}
}

// A session may ask ten questions per minute, so the eleventh is rejected.
func ExampleNewRateLimit() {
	limits, err := plugin.NewRateLimit(plugin.RateLimit{ModelCalls: plugin.CallLimit{Session: 10}, Wait: time.Second})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	helper, err := agent.New(agent.Config{Name: "helper", Model: scripted.New(newReplies(11)...), Plugins: []hook.Plugin{limits}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	for i := range 11 {
		if _, _, err := runTimed(context.Background(), helper, agent.Invocation{}, "session"); err != nil {
			fmt.Fprintln(os.Stdout, i+1, failure.ModeOf(err))
		}
	}
	// Output: 11 policy_rate_limit
}
