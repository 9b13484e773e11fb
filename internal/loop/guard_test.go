package loop_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/internal/loop/guard"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// mailTools returns a tool that reads mail, a tool that sends mail, and two tools of a server. It also returns a
// counter of their runs.
func mailTools(t *testing.T, ran map[string]int) *tool.Set {
	t.Helper()
	made := func(name string) tool.Tool {
		one, err := tool.Func(name, "A tool of the test.", func(context.Context, struct{}) (string, error) {
			ran[name]++
			return name + " did it", nil
		})
		require.NoError(t, err)
		return one
	}
	server := tool.Scope{Untrusted: true, Egress: true, Party: tool.PartyPrefix + "sums"}
	set, err := tool.NewSet(
		tool.WithScope(tool.Scope{Untrusted: true}, tool.WithEffect(execution.Read, made("inbox"))),
		tool.WithEffect(execution.AtMostOnce, made("send")),
		tool.WithScope(server, tool.WithEffect(execution.Read, made("add"))),
		tool.WithScope(server, tool.WithEffect(execution.Read, made("subtract"))),
	)
	require.NoError(t, err)
	return set
}

// toolCalls returns a model reply that calls the tools without arguments.
func toolCalls(names ...string) scripted.Reply {
	var all []conversation.ToolCall
	for _, name := range names {
		all = append(all, conversation.ToolCall{Name: name, Arguments: "{}"})
	}
	return scripted.Call(all...)
}

// toolStatuses returns how the calls of a run ended, keyed by tool. It leaves out waiting calls.
func toolStatuses(out runOutcome) map[string]string {
	all := map[string]string{}
	for _, c := range out.Calls {
		all[c.Tool] = string(c.Status) + c.ErrorType
	}
	return all
}

// mailToolOnly allows only the tools that belong to no server. Otherwise the model would also read the descriptions of the
// server's tools.
var mailToolOnly = &execution.Tools{Names: []string{"inbox", "send"}}

func TestGuard_GuardsCallsAfterUntrustedText(t *testing.T) {
	ran := map[string]int{}
	l := loop.Loop{Tools: mailTools(t, ran), Model: scripted.New(toolCalls("send", "inbox", "send"), toolCalls("send"), scripted.Say("done"))}
	in := newInput("Send, and read.")
	in.AllowedTools = mailToolOnly
	out, err := runToEnd(t.Context(), l, in, ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"inbox": 1, "send": 2}, ran, "it asked for these before it had read anything")
	last := out.Calls[len(out.Calls)-1]
	require.Equal(t, string(failure.PolicySecurity), last.ErrorType)
	require.Contains(t, last.Result, "send does not run: the turn has read what others wrote (tool inbox)")
	require.Equal(t, "tool inbox", out.Messages[len(out.Messages)-1].Untrusted, "its later messages depend on it")
	require.Empty(t, out.Messages[0].Untrusted)
}

// The first request contains the tool descriptions of a server. They do not guard calls of that server's own
// tools, because the author chose the server. The results of those calls do not guard the calls either.
func TestGuard_AServersDescriptionsDoNotGuardItsOwnTools(t *testing.T) {
	ran := map[string]int{}
	l := loop.Loop{Tools: mailTools(t, ran), Model: scripted.New(toolCalls("add"), toolCalls("subtract"), toolCalls("send"), scripted.Say("done"))}
	out, err := runToEnd(t.Context(), l, newInput("Add."), ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"add": 1}, ran)
	require.Equal(t, map[string]string{"add": "success", "subtract": "errorpolicy_security", "send": "errorpolicy_security"}, toolStatuses(out))

	l.Model = scripted.New(toolCalls("send"), scripted.Say("done"))
	out, err = runToEnd(t.Context(), l, newInput("Send."), ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"send": "errorpolicy_security"}, toolStatuses(out))
	require.Contains(t, out.Calls[0].Result, "MCP server sums")
}

// A successor of a lost worker makes the same guard decisions, because it reads the same text. So does the turn
// that continues with the pending calls.
func TestGuard_DecidesTheSameAfterALostAttempt(t *testing.T) {
	ran := map[string]int{}
	j := &fakeJournal{}
	asked := func(replies ...scripted.Reply) (runOutcome, *eventRecorder) {
		emitted := &eventRecorder{}
		in := newInput("Read and send.")
		in.AllowedTools, in.Journal = mailToolOnly, j
		out, err := runToEnd(t.Context(), loop.Loop{Tools: mailTools(t, ran), Model: scripted.New(replies...)}, in, emitted.emit)
		require.NoError(t, err)
		return out, emitted
	}
	first, emitted := asked(toolCalls("inbox"), toolCalls("send"))
	require.Equal(t, event.InputRequired, first.Reason)
	require.Len(t, first.Pending, 1)
	require.Equal(t, execution.NeedApproval, first.Pending[0].Needs)
	require.Contains(t, first.Pending[0].Reason, "tool inbox")
	require.Contains(t, emitted.events, event.Warning{
		Reason: guard.ReasonUntrustedInput, Tool: "send",
		Message: "the tool send waits for an approval, because the turn has read what neither the user nor the author of the agent wrote: tool inbox",
	})

	again, _ := asked() // the journal has both replies
	require.Equal(t, first.Pending[0].ID, again.Pending[0].ID)
	require.Equal(t, map[string]int{"inbox": 1}, ran)

	in := newInput("Read and send.")
	in.AllowedTools, in.Journal = mailToolOnly, j
	in.Answers = []execution.Answer{{
		ID: first.Pending[0].ID, Verdict: execution.Approve, Digest: stepjournal.CallDigest("send", "{}"),
	}}
	out, err := runToEnd(t.Context(), loop.Loop{Tools: mailTools(t, ran), Model: scripted.New(scripted.Say("sent"))}, in, ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, "sent", out.Text)
	require.Equal(t, map[string]int{"inbox": 1, "send": 1}, ran)
}

func TestGuard_AcceptsTheApprovalOfAHandler(t *testing.T) {
	ran := map[string]int{}
	var seen []string
	allow := hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
		seen = append(seen, c.Untrusted)
		c.Allow()
		return nil
	})
	in := newInput("Read and send.", allow)
	in.AllowedTools = mailToolOnly
	_, err := runToEnd(t.Context(), loop.Loop{
		Tools: mailTools(t, ran), Guard: tool.GuardStrict, Model: scripted.New(toolCalls("inbox"), toolCalls("send"), scripted.Say("sent")),
	}, in, ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"inbox": 1, "send": 1}, ran)
	require.Equal(t, []string{"", "tool inbox"}, seen)
}
