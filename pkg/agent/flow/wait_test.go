package flow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// waitingGuard makes every call wait unless its tool only reads.
var waitingGuard = hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
	if c.Effect != execution.Read {
		c.Wait("May "+c.Info().Agent+" do it?", time.Time{})
	}
	return nil
})

// approveCalls returns approvals of the pending calls, or only of the chosen ones.
func approveCalls(waiting []execution.Pending, chosen func(int) bool) []execution.Answer {
	var all []execution.Answer
	for i, p := range waiting {
		if chosen == nil || chosen(i) {
			all = append(all, execution.Answer{ID: p.ID, Verdict: execution.Approve})
		}
	}
	return all
}

// continuingTurn returns the turn that continues an earlier one with answers. It shares the journal of the earlier
// turn.
func continuingTurn(inv agent.Invocation, answers ...execution.Answer) agent.Invocation {
	inv.Step.TurnID += "+"
	inv.Step.Turn++
	inv.Step.Attempt++
	inv.Step.Answers = answers
	return inv
}

// atMostOnceAgent returns an agent that calls an at-most-once tool, which needs an approval.
func (c *callCounts) atMostOnceAgent(t *testing.T, name string, more ...hook.Handler) *agent.Agent {
	t.Helper()
	return build(t, agent.Config{
		Name: name, Tools: []tool.Tool{c.recordingTool(t, execution.AtMostOnce)}, Handlers: append(more, waitingGuard), OutputKey: "answer",
		Model: callingModel{c, []conversation.ToolCall{newToolCall("at_most_once", "what", name)}},
	})
}

// Req: LP-16, LP-32, AD-32
func TestAgent_EndsWithWaitingCallsAndContinues(t *testing.T) {
	w := &callCounts{toolCalls: map[string]int{}}
	var hooks []string
	note := func(name string) func(context.Context, *hook.Turn) (string, error) {
		return func(_ context.Context, turn *hook.Turn) (string, error) {
			hooks = append(hooks, name)
			return "", turn.Memory().Set(name, true)
		}
	}
	a := w.atMostOnceAgent(t, "clerk", hook.BeforeAgent(note("before")), hook.AfterAgent(note("after")), hook.OnComplete(func(context.Context,
		*hook.Completion,
	) error {
		hooks = append(hooks, "complete")
		return nil
	}))
	inv := w.invocation(&journal{entries: map[string]execution.Entry{}})
	events, done, err := runAndDescribe(t.Context(), a, inv)
	require.NoError(t, err)
	text := "at_most_once waits for an approval."
	require.Empty(t, gocmp.Diff(event.TurnResult{
		Turn: inv.Step.Turn, Reason: event.InputRequired, Usage: &execution.Usage{OutputTokens: 1, ModelCalls: 1},
		Result: execution.Result{
			Step: inv.Step.Number, Agent: "clerk", Text: text, InputRequired: true, Iterations: 1, Usage: execution.Usage{OutputTokens: 1, ModelCalls: 1},
			Pending: []execution.Pending{{
				ID: pendingcall.ID(inv.Step.Turn, inv.Step.Number, 2), CallID: "at_most_onceclerk", Tool: "at_most_once", Arguments: `{"what": "clerk"}`,
				Needs: execution.NeedApproval, Risk: execution.AtMostOnce, Reason: "May clerk do it?",
			}},
		},
		Messages: []conversation.Message{conversation.Assistant("clerk", text)},
	}, done, gocmp.FilterPath(func(p gocmp.Path) bool { return p.String() == "Duration" }, gocmp.Ignore())))
	require.Equal(t, []string{"before"}, hooks)
	require.Equal(t, []string{"clerk tool_pending", "clerk assistant", "clerk turn_result"}, events[len(events)-3:])
	require.Empty(t, w.toolCalls)

	_, done, err = runAndDescribe(t.Context(), a, continuingTurn(inv, approveCalls(done.Result.Pending, nil)...))
	require.NoError(t, err)
	require.Equal(t, "read [did clerk]", done.Result.Text)
	require.Equal(t, event.Natural, done.Reason)
	require.Equal(t, []string{"after", "answer", "before", "did clerk"}, slices.Sorted(maps.Keys(done.State)))
	require.Equal(t, []string{"before", "before", "after", "complete"}, hooks)
	require.Len(t, w.toolCalls, 1)
	require.Equal(t, 2, w.modelCalls)
}

// Calls may wait anywhere in a flow, and may be approved in any order. No call runs twice, and no approval is
// asked for twice. The result is the same as without approvals.
// Req: LP-32, AD-28, AD-29, AD-32
func TestFlow_ContinuesHoweverManyCallsWait(t *testing.T) {
	free := &callCounts{toolCalls: map[string]int{}}
	_, want, err := runAndDescribe(t.Context(), free.flowOfEveryKind(t), free.invocation(&journal{entries: map[string]execution.Entry{}}))
	require.NoError(t, err)

	rapid.Check(t, func(rt *rapid.T) {
		w := &callCounts{toolCalls: map[string]int{}, handlers: []hook.Handler{waitingGuard}}
		flow, j := w.flowOfEveryKind(t), &journal{entries: map[string]execution.Entry{}}
		inv, allowed := w.invocation(j), map[string]bool{}
		for turns := 0; ; turns++ {
			require.Less(rt, turns, 200)
			if rapid.IntRange(0, 3).Draw(rt, "lost") == 0 { // the worker is lost somewhere
				left := rapid.IntRange(0, 120).Draw(rt, "after")
				for _, err := range flow.Run(t.Context(), inv) {
					require.NoError(rt, err)
					if left--; left < 0 {
						break
					}
				}
				inv.Step.Attempt++
			}
			replayed := j.replies()
			asked := w.modelCalls
			_, got, err := runAndDescribe(t.Context(), flow, inv)
			require.NoError(rt, err)
			require.Empty(rt, j.conflicts)
			require.Equal(rt, j.replies()-replayed, w.modelCalls-asked, "no model call is repeated")
			waiting := got.Result.Pending
			if len(waiting) == 0 {
				got.Duration, got.Turn = want.Duration, want.Turn
				require.Empty(rt, gocmp.Diff(want, got))
				require.Equal(rt, want.Result.Usage.ModelCalls, j.replies())
				break
			}
			ids := map[string]bool{}
			for _, p := range waiting {
				require.False(rt, ids[p.ID] || allowed[p.ID], "%s is asked about twice", p.ID)
				ids[p.ID] = true
			}
			require.Empty(rt, got.State)
			require.Equal(rt, got.Result.Text, got.Messages[0].Text)
			answers := approveCalls(waiting, func(i int) bool { return i == turns%len(waiting) || rapid.Bool().Draw(rt, "approved") })
			for _, a := range answers {
				allowed[a.ID] = true
			}
			inv = continuingTurn(inv, answers...)
		}
		calls := map[string]int{}
		for did, times := range w.toolCalls {
			require.Equal(rt, 1, times, did)
			calls[did[:strings.LastIndex(did, " ")]]++
		}
		for did, times := range calls {
			require.True(rt, times == 1 || did == "count" && times == 2, did)
		}
	})
}

// Req: LP-16, AD-28
func TestParallel_CollectsWaitingCalls(t *testing.T) {
	w := &callCounts{toolCalls: map[string]int{}}
	free, _ := sayingAgent(t, "free", "I am free.")
	team := mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "team"}, w.atMostOnceAgent(t, "a"), free, w.atMostOnceAgent(t, "b")))
	inv := w.invocation(&journal{entries: map[string]execution.Entry{}})
	_, done, err := runAndDescribe(t.Context(), team, inv)
	require.NoError(t, err)
	require.Equal(t, "at_most_once waits for an approval.", done.Result.Text)
	require.Len(t, done.Result.Pending, 2)
	require.Equal(t, "May b do it?", done.Result.Pending[1].Reason)

	// A denial applies only to its call, a stop to all calls.
	denied := execution.Answer{ID: done.Result.Pending[0].ID, Verdict: execution.Deny}
	inv = continuingTurn(inv, denied)
	_, done, err = runAndDescribe(t.Context(), team, inv)
	require.NoError(t, err)
	require.Len(t, done.Result.Pending, 1)
	_, stopped, err := runAndDescribe(t.Context(), team, continuingTurn(inv, execution.Answer{
		ID: done.Result.Pending[0].ID, Verdict: execution.Stop,
		Text: "no",
	}))
	require.NoError(t, err)
	require.Equal(t, event.Stopped, stopped.Reason)
	require.True(t, stopped.Result.Stopped)
	require.Empty(t, stopped.Result.Pending)
	require.Empty(t, w.toolCalls)

	_, done, err = runAndDescribe(t.Context(), team, continuingTurn(inv, approveCalls(done.Result.Pending, nil)...))
	require.NoError(t, err)
	require.Equal(t, "a:\nread [Not run: the user does not allow at_most_once.]\n\nfree:\nI am free.\n\nb:\nread [did b]", done.Result.Text)
}

// Stopping one of two waiting calls ends the turn, although the other call still waits.
func TestParallel_StopWinsOverWaitingCalls(t *testing.T) {
	w, waits := &callCounts{toolCalls: map[string]int{}}, make(chan struct{})
	behind := hook.BeforeAgent(func(context.Context, *hook.Turn) (string, error) { <-waits; return "", nil })
	team := mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "team"}, w.atMostOnceAgent(t, "a"), w.atMostOnceAgent(t, "b", behind)))
	inv := w.invocation(&journal{entries: map[string]execution.Entry{}})
	close(waits)
	_, done, err := runAndDescribe(t.Context(), team, inv)
	require.NoError(t, err)

	waits = make(chan struct{})
	inv = continuingTurn(inv, execution.Answer{ID: done.Result.Pending[1].ID, Verdict: execution.Stop})
	done, err = team.Execute(t.Context(), inv, func(e event.Event) error {
		if _, ok := e.Payload.(event.ToolPending); ok {
			close(waits)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, event.Stopped, done.Reason)
	require.Empty(t, done.Result.Pending)
}

// An agent that is a tool waits together with its pending calls. The tool itself is approved only once.
// Req: AD-29, AD-32
func TestAsTool_WaitsWithItsCalls(t *testing.T) {
	w := &callCounts{toolCalls: map[string]int{}}
	boss := build(t, agent.Config{
		Name: "boss", Tools: []tool.Tool{mustBuildTool(t, w.atMostOnceAgent(t, "aide"))}, Handlers: []hook.Handler{waitingGuard},
		Model: callingModel{w, []conversation.ToolCall{newToolCall("aide", "request", "help")}},
	})
	inv := w.invocation(&journal{entries: map[string]execution.Entry{}})
	var reasons []string
	for {
		events, done, err := runAndDescribe(t.Context(), boss, inv)
		require.NoError(t, err)
		if len(done.Result.Pending) == 0 {
			require.Equal(t, "read [read [did aide]]", done.Result.Text)
			break
		}
		require.Len(t, done.Result.Pending, 1)
		require.Contains(t, events, "boss tool_pending")
		reasons = append(reasons, done.Result.Pending[0].Reason)
		inv = continuingTurn(inv, approveCalls(done.Result.Pending, nil)...)
	}
	require.Equal(t, []string{"May boss do it?", "May aide do it?"}, reasons)
	require.Len(t, w.toolCalls, 1)
}

func TestAgent_NoCallWaitsWithoutAJournal(t *testing.T) {
	screen, err := tool.Client("screen", "Reads the screen.", json.RawMessage(`{"type": "object"}`))
	require.NoError(t, err)
	w := &callCounts{toolCalls: map[string]int{}}
	guarded := build(t, agent.Config{
		Name: "clerk", Tools: []tool.Tool{w.recordingTool(t, execution.Idempotent), screen}, Handlers: []hook.Handler{waitingGuard}, MaxFailures: 5,
		Model: callingModel{w, []conversation.ToolCall{newToolCall("idempotent", "what", "it"), newToolCall("screen", "all", "yes")}},
	})
	inside := build(t, agent.Config{
		Name: "boss", Model: callingModel{w, []conversation.ToolCall{newToolCall("clerk", "request", "help")}},
		Tools: []tool.Tool{tool.WithEffect(execution.Idempotent, mustBuildTool(t, guarded))},
	})
	inv := w.invocation(&journal{entries: map[string]execution.Entry{}})
	inv.Step.Answers = []execution.Answer{{ID: pendingcall.ID(inv.Step.Turn, inv.Step.Number, 2), Verdict: execution.Approve}} // of a call of its parent
	for a, inv := range map[*agent.Agent]agent.Invocation{guarded: {Step: questionStep("Do it.")}, inside: inv} {
		_, done, err := runAndDescribe(t.Context(), a, inv)
		require.NoError(t, err)
		require.Contains(t, done.Result.Text, "idempotent needs an approval, and no person can be asked for it.")
		require.Empty(t, done.Result.Pending)
		require.Empty(t, w.toolCalls)
	}
	told, err := guarded.CallTool(t.Context(), "screen", "{}")
	require.NoError(t, err)
	require.Equal(t, event.ToolError, told.Status)
	require.Contains(t, told.Result, "needs an approval")
}

func TestFlow_LimitsTheCallsThatWait(t *testing.T) {
	w := &callCounts{toolCalls: map[string]int{}}
	many := func(name string, n int) *agent.Agent {
		var calls []conversation.ToolCall
		for i := range n {
			calls = append(calls, newToolCall("idempotent", "what", fmt.Sprint(i)))
		}
		return build(t, agent.Config{
			Name: name, Parallel: true, Tools: []tool.Tool{w.recordingTool(t, execution.Idempotent)},
			Handlers: []hook.Handler{waitingGuard}, Model: callingModel{w, calls},
		})
	}
	team := mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "team", OnFailure: agent.Degrade}, many("a", 60), many("b", 5)))
	_, _, err := runAndDescribe(t.Context(), team, w.invocation(&journal{entries: map[string]execution.Entry{}}))
	require.True(t, failure.Is(err, failure.ResourceQuota), "%v", err)
	require.ErrorContains(t, err, "65 tool calls would wait at once, and a turn may leave 64")
}

// A step that chooses a route can wait for a call like any other step.
func TestSequence_WaitsInAStepThatChoosesARoute(t *testing.T) {
	w := &callCounts{toolCalls: map[string]int{}}
	router, _ := sayingAgent(t, "router", "billing")
	flow := mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "front"}, w.atMostOnceAgent(t, "clerk"), router))
	inv := w.invocation(&journal{entries: map[string]execution.Entry{}})
	inv.Step.Routes = []string{"billing", "sales"}
	_, done, err := runAndDescribe(t.Context(), flow, inv)
	require.NoError(t, err)
	require.True(t, done.Result.InputRequired)
	_, done, err = runAndDescribe(t.Context(), flow, continuingTurn(inv, approveCalls(done.Result.Pending, nil)...))
	require.NoError(t, err)
	require.Equal(t, "billing", done.Result.NextAgent)
}

// Work that a Run function requests from another system is done once, even if the turn ends in between and
// continues later.
// Req: LP-32
func TestInvocation_KeepsItsKeyWhenATurnContinues(t *testing.T) {
	w := &callCounts{toolCalls: map[string]int{}}
	var keys []string
	remote := build(t, agent.Config{Name: "remote", Run: func(_ context.Context, inv agent.Invocation) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) {
			keys = append(keys, inv.Key(), inv.Key())
			yield(event.Event{Payload: event.Message{Text: "done"}}, nil)
		}
	}})
	flow := mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "all"}, remote, w.atMostOnceAgent(t, "clerk")))
	inv := w.invocation(&journal{entries: map[string]execution.Entry{}})
	_, done, err := runAndDescribe(t.Context(), flow, inv)
	require.NoError(t, err)
	_, _, err = runAndDescribe(t.Context(), flow, continuingTurn(inv, approveCalls(done.Result.Pending, nil)...))
	require.NoError(t, err)
	require.Len(t, keys, 4)
	require.Len(t, slices.Compact(keys), 1)
}
