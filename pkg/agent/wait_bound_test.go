package agent_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/loop/prepare"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/agenttest"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// waitingGuard makes every call wait unless its tool only reads.
var waitingGuard = hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
	if c.Effect != execution.Read {
		c.Wait("May "+c.Info().Agent+" do it?", time.Time{})
	}
	return nil
})

// An approval applies only to the arguments that the person saw. If a handler later changes them, for example
// because state changed, the call does not run.
// Req: AD-32
func TestSession_ApprovalCoversOnlyTheShownArguments(t *testing.T) {
	for name, tc := range map[string]struct {
		to   func(times int) string
		sent []string
	}{
		"the same":       {func(int) string { return "ann" }, []string{"ann"}},
		"others by then": {func(times int) string { return fmt.Sprint("person", times) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var sent []string
			send, err := tool.Func("send", "Sends.", func(_ context.Context, in struct {
				To string `json:"to"`
			},
			) (string, error) {
				sent = append(sent, in.To)
				return "sent", nil
			})
			require.NoError(t, err)
			times := 0
			s := agenttest.NewSession(t, build(t, agent.Config{
				Name: "clerk", Tools: []tool.Tool{send},
				Handlers: []hook.Handler{waitingGuard, hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
					times++
					c.Arguments = fmt.Sprintf(`{"to": %q}`, tc.to(times))
					return nil
				})},
				Model: scripted.New(scripted.Call(conversation.ToolCall{Name: "send", Arguments: `{"to": "bob"}`}), scripted.Say("Done.")),
			}))
			waits := s.Say("Write.").Pending
			require.Len(t, waits, 1)
			require.Equal(t, "clerk", waits[0].Agent)
			require.Equal(t, fmt.Sprintf(`{"to": %q}`, tc.to(1)), waits[0].Arguments)
			turn := s.Approve()
			require.Equal(t, "Done.", turn.Text)
			require.Equal(t, tc.sent, sent)
			if tc.sent == nil {
				require.Len(t, turn.Warnings, 1)
				require.Equal(t, prepare.ReasonApprovalOutdated, turn.Warnings[0].Reason)
			}
		})
	}
}
