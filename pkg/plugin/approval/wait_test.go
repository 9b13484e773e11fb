package approval_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/agenttest"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/plugin/approval"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Without an Asker the turn ends with the pending calls and their deadline.
// Req: AD-32, OC-33, CO-64
func TestApproval_LetsACallWait(t *testing.T) {
	for name, tc := range map[string]struct{ timeout, want time.Duration }{
		"by default":    {0, 5 * time.Minute},
		"as configured": {time.Hour, time.Hour},
		"maximum":       {approval.MaxTimeout, 7 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newApprovalTest(t, approval.Config{Timeout: tc.timeout}, toolRound("look", "send", "look"), scripted.Say("done"))
				s := agenttest.NewSession(t, d.agent)
				turn := s.Say("go")
				require.Equal(t, "send waits for an approval.", turn.Text)
				require.Equal(t, event.InputRequired, turn.Result.Reason)
				require.Empty(t, cmp.Diff([]execution.Pending{{
					ID: "1-1-3", Agent: "clerk", CallID: "2", Tool: "send", Arguments: "{}", Needs: execution.NeedApproval, Risk: execution.AtMostOnce,
					Reason: "The agent clerk wants to run send: Does send.", Until: time.Now().Add(tc.want),
				}}, turn.Pending))
				require.Equal(t, []string{"look"}, d.executed)

				time.Sleep(tc.want - time.Second)
				require.Equal(t, "done", s.Approve().Text)
				require.Equal(t, []string{"look", "send", "look"}, d.executed)
			})
		})
	}
}

// Req: AD-32, OC-33, CO-64
func TestApproval_AppliesTheAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		answer   execution.Answer
		after    time.Duration
		text     string
		result   string
		warnings []string
		did      []string
	}{
		"approved": {execution.Answer{Verdict: execution.Approve}, 0, "done", "did send", nil, []string{"send", "look"}},
		"denied": {
			execution.Answer{Verdict: execution.Deny, Text: "not today"},
			0, "done", "Not run: the user does not allow send: not today", nil,
			[]string{"look"},
		},
		"stopped": {execution.Answer{Verdict: execution.Stop}, 0, "The turn was stopped: the user does not allow send.", "", nil, nil},
		"too late": {
			execution.Answer{Verdict: execution.Approve},
			5*time.Minute + 1, "done", "Not run: nobody approved it within 5m0s.",
			[]string{"APPROVAL_TIMEOUT"},
			[]string{"look"},
		},
		"late stop": {
			execution.Answer{Verdict: execution.Stop},
			5*time.Minute + 1, "done", "Not run: nobody approved it within 5m0s.",
			[]string{"APPROVAL_TIMEOUT"},
			[]string{"look"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newApprovalTest(t, approval.Config{}, toolRound("send", "look"), scripted.Say("done"))
				s := agenttest.NewSession(t, d.agent)
				tc.answer.ID = s.Say("go").Pending[0].ID
				time.Sleep(tc.after)
				turn := s.Answer(tc.answer)
				require.Equal(t, tc.text, turn.Text)
				require.Equal(t, tc.did, d.executed)
				if tc.result != "" {
					require.Equal(t, tc.result, d.model.Requests()[1].Messages[2].Text)
				}
				var warned []string
				for _, w := range turn.Warnings {
					warned = append(warned, w.Reason)
				}
				require.Equal(t, tc.warnings, warned)
			})
		})
	}
}

// Each answer applies to one call. Nothing is remembered for the session.
func TestApproval_AsksAboutEachCall(t *testing.T) {
	d := newApprovalTest(t, approval.Config{}, toolRound("send", "save", "send"), scripted.Say("done"))
	s := agenttest.NewSession(t, d.agent)
	s.Say("go")
	for _, want := range []string{"save waits for an approval.", "send waits for an approval.", "done"} {
		require.Equal(t, want, s.Approve().Text)
	}
	require.Equal(t, []string{"send", "save", "send"}, d.executed)
}

// The client decides about the tools that it runs, unless a tool is listed in Always.
func TestApproval_DoesNotAskAboutClientTools(t *testing.T) {
	screen, err := tool.Client("screen", "Reads the screen.", json.RawMessage(`{"type": "object"}`))
	require.NoError(t, err)
	for _, always := range [][]string{nil, {"screen"}} {
		guard, err := approval.New(approval.Config{Always: always})
		require.NoError(t, err)
		a, err := agent.New(agent.Config{
			Name: "clerk", Tools: []tool.Tool{screen}, Plugins: []hook.Plugin{guard},
			Model: scripted.New(scripted.Call(conversation.ToolCall{Name: "screen"}), scripted.Say("Seen.")),
		})
		require.NoError(t, err)
		s := agenttest.NewSession(t, a)
		turn := s.Say("Look.")
		if always != nil {
			require.Equal(t, execution.NeedApproval, turn.Pending[0].Needs)
			turn = s.Approve()
		}
		require.Equal(t, execution.NeedResult, turn.Pending[0].Needs)
		turn = s.Answer(execution.Answer{ID: turn.Pending[0].ID, Verdict: execution.Succeed, Text: "a cat"})
		require.Equal(t, "Seen.", turn.Text)
	}
}

func TestNew_RejectsInvalidTimeouts(t *testing.T) {
	for _, wrong := range []time.Duration{-1, approval.MaxTimeout + 1} {
		_, err := approval.New(approval.Config{Timeout: wrong})
		require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)
		require.ErrorContains(t, err, fmt.Sprintf("Timeout %v: use a duration of at most 168h0m0s, or 0 for 5m0s", wrong))
	}
}

// The handlers after the plugin run before a person is asked, so the person reads the final arguments.
func TestApproval_ShowsTheFinalArguments(t *testing.T) {
	type in struct {
		To string `json:"to"`
	}
	var sent string
	send, err := tool.Func("send", "Sends.", func(_ context.Context, in in) (string, error) { sent = in.To; return "sent", nil })
	require.NoError(t, err)
	guard, err := approval.New(approval.Config{})
	require.NoError(t, err)
	a, err := agent.New(agent.Config{
		Name: "clerk", Tools: []tool.Tool{send}, Plugins: []hook.Plugin{guard},
		Handlers: []hook.Handler{hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error { c.Arguments = `{"to": "ann@example.org"}`; return nil })},
		Model:    scripted.New(scripted.Call(conversation.ToolCall{Name: "send", Arguments: `{"to": "ann"}`}), scripted.Say("Sent.")),
	})
	require.NoError(t, err)
	s := agenttest.NewSession(t, a)
	require.Equal(t, `{"to": "ann@example.org"}`, s.Say("Write to Ann.").Pending[0].Arguments)
	require.Equal(t, "Sent.", s.Approve().Text)
	require.Equal(t, "ann@example.org", sent)
}
