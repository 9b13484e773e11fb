package ratelimit_test

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
	"github.com/troupe-dev/troupe/pkg/plugin/ratelimit"
	"github.com/troupe-dev/troupe/pkg/tool"
)

func build(t *testing.T, c ratelimit.Config, replies ...scripted.Reply) *agent.Agent {
	t.Helper()
	plugin, err := ratelimit.New(c)
	require.NoError(t, err)
	look, err := tool.Func("look", "Looks.", func(context.Context, struct{}) (string, error) { return "seen", nil })
	require.NoError(t, err)
	a, err := agent.New(agent.Config{
		Name: "helper", Model: scripted.New(replies...), Tools: []tool.Tool{look}, Plugins: []hook.Plugin{plugin}, Timeout: time.Hour,
	})
	require.NoError(t, err)
	return a
}

func many(n int) (replies []scripted.Reply) {
	for range n {
		replies = append(replies, scripted.Say("ok"))
	}
	return replies
}

// turn runs one, and says how long it took.
func turn(ctx context.Context, a *agent.Agent, inv agent.Invocation, session string) (time.Duration, []event.ToolFinished, error) {
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
func TestRateLimit_LetsCallsWaitForTheirTurn(t *testing.T) {
	for name, tc := range map[string]struct {
		limit ratelimit.Limit
		waits map[string][]time.Duration // by session, one after the other
	}{
		"of a session": {ratelimit.Limit{Session: 2}, map[string][]time.Duration{
			"a": {0, 0, 30 * time.Second, 30 * time.Second}, "b": {0, 0, 30 * time.Second},
		}},
		"of the agent": {ratelimit.Limit{Agent: 3}, map[string][]time.Duration{"a": {0, 0, 0, 20 * time.Second, 20 * time.Second}}},
		"of both":      {ratelimit.Limit{Agent: 6, Session: 1}, map[string][]time.Duration{"a": {0, time.Minute}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := build(t, ratelimit.Config{ModelCalls: tc.limit, Wait: time.Minute}, many(10)...)
				for session, waits := range tc.waits {
					for _, want := range waits {
						took, _, err := turn(t.Context(), a, agent.Invocation{}, session)
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
		a := build(t, ratelimit.Config{ModelCalls: ratelimit.Limit{Agent: 1}}, many(2)...)
		_, _, err := turn(t.Context(), a, agent.Invocation{}, "a")
		require.NoError(t, err)
		_, _, err = turn(t.Context(), a, agent.Invocation{}, "b")
		require.True(t, failure.Is(err, failure.PolicyRateLimit), "%v", err)
	})
}

func TestRateLimit_RefusesWhatWouldWaitTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := build(t, ratelimit.Config{ModelCalls: ratelimit.Limit{Session: 1}}, many(3)...)
		_, _, err := turn(t.Context(), a, agent.Invocation{}, "a")
		require.NoError(t, err)
		<-time.After(5 * time.Second)
		for range 3 { // who is refused does not make the others wait longer
			took, _, err := turn(t.Context(), a, agent.Invocation{}, "a")
			require.True(t, failure.Is(err, failure.PolicyRateLimit), "%v", err)
			require.ErrorContains(t, err, "try again in 55s")
			require.Zero(t, took)
			told := grpcfailure.FromProto(grpcfailure.ToProto(err)) // as the caller sees it
			require.True(t, told.Mode.Retryable())
			after, err := time.ParseDuration(told.Facts["retry_after"])
			require.NoError(t, err)
			require.InDelta(t, 55*time.Second, after, float64(time.Millisecond))
		}
		<-time.After(55 * time.Second)
		_, _, err = turn(t.Context(), a, agent.Invocation{}, "a")
		require.NoError(t, err)
	})
}

func TestRateLimit_FailsATool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		look := conversation.ToolCall{Name: "look"}
		a := build(t, ratelimit.Config{ToolCalls: ratelimit.Limit{Session: 2}, Wait: time.Second}, scripted.Call(look, look, look), scripted.Say("done"))
		_, calls, err := turn(t.Context(), a, agent.Invocation{}, "a")
		require.NoError(t, err, "the turn goes on")
		require.Equal(t, []event.ToolStatus{event.ToolSuccess, event.ToolSuccess, event.ToolError},
			[]event.ToolStatus{calls[0].Status, calls[1].Status, calls[2].Status})
		require.Equal(t, string(failure.PolicyRateLimit), calls[2].ErrorType)
		require.Contains(t, calls[2].Result, "there were too many tool calls; try again in 30s")
	})
}

// Req: CO-63
func TestRateLimit_DoesNotHoldUpAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := build(t, ratelimit.Config{ModelCalls: ratelimit.Limit{Session: 1}, Wait: time.Minute}, many(2)...)
		_, _, err := turn(t.Context(), a, agent.Invocation{}, "a")
		require.NoError(t, err)
		stop, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		took, _, err := turn(t.Context(), a, agent.Invocation{Stop: stop}, "a")
		require.NoError(t, err, "a turn that is stopped has an answer")
		require.Equal(t, time.Second, took)

		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		took, _, err = turn(ended, a, agent.Invocation{}, "a")
		require.True(t, failure.Is(err, failure.AgentTimeout), "%v", err)
		require.Equal(t, time.Second, took)

		took, _, err = turn(t.Context(), a, agent.Invocation{}, "a")
		require.NoError(t, err)
		require.InDelta(t, 58*time.Second, took, float64(time.Millisecond), "who left gave its place back")
	})
}

func TestNew_NamesWhatIsWrong(t *testing.T) {
	for want, c := range map[string]ratelimit.Config{
		"ModelCalls.Agent is -1":    {ModelCalls: ratelimit.Limit{Agent: -1}},
		"ToolCalls.Session is -2":   {ToolCalls: ratelimit.Limit{Session: -2}},
		"Wait is -1s":               {ToolCalls: ratelimit.Limit{Session: 2}, Wait: -time.Second},
		"ModelCalls and ToolCalls ": {},
	} {
		_, err := ratelimit.New(c)
		require.True(t, failure.Is(err, failure.AgentValidation))
		require.ErrorContains(t, err, want)
	}
}

// Ten questions a minute and session, and what the eleventh is told.
func Example() {
	plugin, err := ratelimit.New(ratelimit.Config{ModelCalls: ratelimit.Limit{Session: 10}, Wait: time.Second})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	helper, err := agent.New(agent.Config{Name: "helper", Model: scripted.New(many(11)...), Plugins: []hook.Plugin{plugin}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	for i := range 11 {
		if _, _, err := turn(context.Background(), helper, agent.Invocation{}, "session"); err != nil {
			fmt.Fprintln(os.Stdout, i+1, failure.ModeOf(err))
		}
	}
	// Output: 11 policy_rate_limit
}
