package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/plugin/guardrails"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// The recording does not contain a reply that a handler rejected, however long the recording is. The replay of the
// failed step works without that reply.
func TestExecuteStep_DoesNotRecordARejectedReply(t *testing.T) {
	s := newWorkerEnv(t)
	guarded := func() agent.Config {
		plugin, err := guardrails.New(guardrails.Config{Output: []guardrails.Check{guardrails.Func("secret", func(_ context.Context, _ *hook.Turn,
			text string,
		) (bool, error) {
			return strings.Contains(text, "hunter2"), nil
		})}})
		require.NoError(t, err)
		return agent.Config{Name: "a", Model: scripted.New(scripted.Say("The password is hunter2.")), Plugins: []hook.Plugin{plugin}}
	}
	req := s.runRecorded(t, guarded())
	failed := grpcfailure.FromProto(req.GetResult().GetFailure())
	require.NotNil(t, failed)
	_, err := s.memory.FailTurn(t.Context(), memory.Fail{
		Ref: session.Ref{Session: "s1"}, TurnID: "t1", Epoch: req.GetStep().GetEpoch(), Outcome: session.OutcomeFailed, Failure: failed,
	})
	require.NoError(t, err)
	_, messages := s.storedSession(t, "s1")
	for _, m := range messages {
		require.NotContains(t, m.Text, "hunter2")
	}
	again := guarded()
	again.Model = scripted.New()
	require.Nil(t, s.replayStep(t, again, req).GetDifference())
}

// A retry of a failed recorded step makes its own calls, and the recording contains the retry.
func TestExecuteStep_RetriesARecordedStep(t *testing.T) {
	call := func(to string) scripted.Reply {
		return scripted.Call(conversation.ToolCall{ID: to, Name: "send", Arguments: `{"to":"` + to + `"}`})
	}
	for name, c := range map[string]struct {
		replies []scripted.Reply
		mode    failure.Mode
	}{
		"an empty reply":    {[]scripted.Reply{scripted.Say(""), scripted.Say("Done.")}, failure.AgentLogic},
		"tools that failed": {[]scripted.Reply{call("ann"), call("bob"), call("eve"), call("joe"), scripted.Say("Done.")}, failure.ResourceTool},
	} {
		for _, recorded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, recorded %t", name, recorded), func(t *testing.T) {
				s := newWorkerEnv(t)
				var calls atomic.Int32
				made, err := tool.Func("send", "Sends.", func(context.Context, mailArguments) (string, error) {
					if calls.Add(1) <= 3 {
						return "", errors.New("the mail service is unavailable")
					}
					return "sent", nil
				})
				require.NoError(t, err)
				config := func(m *scripted.Model) agent.Config {
					return agent.Config{Name: "a", Model: m, Tools: []tool.Tool{tool.WithEffect(execution.Idempotent, made)}}
				}
				r := s.start(t, config(scripted.New(c.replies...)))
				req := s.beginTurn(t, "a", "s1")
				req.Recorded = recorded
				_, result := readStep(t, r.execute(t.Context(), t, req))
				require.Equal(t, c.mode, grpcfailure.FromProto(result.GetFailure()).Mode, "%v", result)
				req.Attempt = 2
				_, result = readStep(t, r.execute(t.Context(), t, req))
				require.Nil(t, result.GetFailure())
				require.Equal(t, "Done.", result.GetText())
				require.NoError(t, r.stop())
				if recorded {
					done := s.replayStep(t, config(scripted.New()), &troupev1.ReplayStepRequest{Step: req, Result: result})
					require.Nil(t, done.GetDifference(), "%v", done)
				}
			})
		}
	}
}
