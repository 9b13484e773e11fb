package hook_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/agenttest"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// waitArguments holds the arguments of Control.SetWait about the waiting of a call.
type waitArguments struct {
	canContinue, waitedOrRan bool
	answer                   execution.Answer
}

// callAfterHandlers runs the BeforeEachTool handlers on a call and returns the resulting call.
func callAfterHandlers(t *testing.T, w waitArguments, handlers ...hook.Handler) *hook.Call {
	t.Helper()
	set, err := hook.NewSet(nil, handlers)
	require.NoError(t, err)
	c := hook.New(hook.Start{Handlers: set})
	call := &hook.Call{Turn: c.Turn(), Name: "send", Arguments: "{}"}
	c.SetWait(call, w.canContinue, w.waitedOrRan, w.answer)
	require.NoError(t, c.Handlers.BeforeEachTool(t.Context(), call))
	return call
}

func wait(reason string) hook.Handler {
	return hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
		c.Wait(reason, time.Unix(int64(len(reason)), 0))
		return nil
	})
}

// Req: AD-32
func TestCall_FirstHandlerThatWaitsDecides(t *testing.T) {
	changeArguments := hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error { c.Arguments = `{"a": 1}`; return nil })
	call := callAfterHandlers(t, waitArguments{canContinue: true}, wait("one"), changeArguments, wait("second"))
	require.Equal(t, event.ToolWaiting, call.Status)
	require.Equal(t, "one", call.Text)
	require.Equal(t, time.Unix(3, 0), call.Until)
	require.JSONEq(t, `{"a": 1}`, call.Arguments, "the handlers after it ran")
	require.True(t, call.CanWait())
	_, answered := call.Answered()
	require.False(t, answered)
}

func TestCall_LaterHandlerMayAnswerInsteadOfWaiting(t *testing.T) {
	refuse := hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error { c.Reject("never"); return nil })
	for name, handlers := range map[string][]hook.Handler{"before": {refuse, wait("one")}, "after": {wait("one"), refuse}} {
		call := callAfterHandlers(t, waitArguments{canContinue: true}, handlers...)
		require.Equal(t, event.ToolError, call.Status, name)
		require.Equal(t, "never", call.Text, name)
	}
}

// Req: CO-64, LP-32
func TestCall_WaitsOnlyWhenItMust(t *testing.T) {
	answer := func(v execution.Verdict, late bool) waitArguments {
		return waitArguments{canContinue: true, answer: execution.Answer{ID: "1-1-2", Verdict: v, Late: late}}
	}
	for name, tc := range map[string]struct {
		waiting waitArguments
		want    event.ToolStatus
	}{
		"no person can be asked": {waitArguments{}, event.ToolError},
		"it waited before":       {waitArguments{canContinue: true, waitedOrRan: true}, ""},
		"allowed":                {answer(execution.Approve, false), ""},
		"ran at the client":      {answer(execution.Succeed, false), ""},
		"failed there":           {answer(execution.Fail, false), ""},
		"allowed too late":       {answer(execution.Approve, true), event.ToolWaiting},
		"denied":                 {answer(execution.Deny, false), event.ToolWaiting},
		"stopped":                {answer(execution.Stop, false), event.ToolWaiting},
	} {
		call := callAfterHandlers(t, tc.waiting, wait("one"))
		require.Equal(t, tc.want, call.Status, name)
		a, answered := call.Answered()
		require.Equal(t, tc.waiting.answer, a, name)
		require.Equal(t, a.ID != "", answered, name)
	}
}

// A handler makes a call wait. When the turn continues, the handler calls Wait again and the approved call runs.
func ExampleCall_Wait() {
	big := hook.BeforeEachTool(func(_ context.Context, call *hook.Call) error {
		if call.Name == "pay" && strings.Contains(call.Arguments, "000") {
			call.Wait("That is a lot of money.", time.Now().Add(time.Hour))
		}
		return nil
	})
	type bill struct {
		Euros int `json:"euros"`
	}
	pay, err := tool.Func("pay", "Pays a bill.", func(_ context.Context, in bill) (string, error) { return fmt.Sprintf("paid %d", in.Euros), nil })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	a, err := agent.New(agent.Config{
		Name: "clerk", Tools: []tool.Tool{pay}, Handlers: []hook.Handler{big},
		Model: scripted.New(scripted.Call(payCall("12"), payCall("9000")), scripted.Say("Both are paid.")),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	s := agenttest.NewSession(printingT{}, a)
	turn := s.Say("Pay the bills.")
	fmt.Fprintln(os.Stdout, turn.Text, turn.Pending[0].Arguments, turn.Pending[0].Reason)
	fmt.Fprintln(os.Stdout, s.Approve().Text)
	// Output:
	// pay waits for an approval. {"euros": 9000} That is a lot of money.
	// Both are paid.
}

func payCall(euros string) conversation.ToolCall {
	return conversation.ToolCall{Name: "pay", Arguments: `{"euros": ` + euros + `}`}
}

// printingT stands in for *testing.T in an example. It prints failures.
type printingT struct{}

func (printingT) Helper()                           {}
func (printingT) Context() context.Context          { return context.Background() }
func (printingT) Cleanup(func())                    {}
func (printingT) Fatalf(format string, args ...any) { fmt.Fprintf(os.Stdout, format+"\n", args...) }
