package flow_test

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// journal is an in-memory journal of one step that all of its attempts share. Each record is durable at once.
type journal struct {
	mu        sync.Mutex
	entries   map[string]execution.Entry
	conflicts []string
}

func (j *journal) Replay(number int, phase execution.Phase) (execution.Entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, ok := j.entries[fmt.Sprint(number, phase)]
	return e, ok
}

func (j *journal) Record(e execution.Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := fmt.Sprint(e.Number, e.Phase)
	if before, ok := j.entries[at]; ok && gocmp.Diff(before, e) != "" {
		j.conflicts = append(j.conflicts, gocmp.Diff(before, e))
	}
	j.entries[at] = e
}

func (j *journal) Sync(context.Context) error { return nil }

// replies returns how many model calls the journal holds.
func (j *journal) replies() (n int) {
	for _, e := range j.entries {
		if e.Tool == "" {
			n++
		}
	}
	return n
}

// callCounts counts the model calls and tool calls of all attempts.
type callCounts struct {
	mu         sync.Mutex
	modelCalls int            // models
	toolCalls  map[string]int // tool calls by effect, argument and idempotency key, or by the name of the tool and the key
	handlers   []hook.Handler // of all agents that have tools
}

// callingModel is a model that makes its tool calls in the first round. Then it repeats their results, so that its
// text depends on them.
type callingModel struct {
	counts *callCounts
	calls  []conversation.ToolCall
}

func (callingModel) Name() string { return "test/brain" }

func (c callingModel) Generate(_ context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		var read []string
		for _, m := range req.Messages {
			if m.Role == conversation.RoleTool {
				read = append(read, m.Text)
			}
		}
		c.counts.mu.Lock()
		c.counts.modelCalls++
		c.counts.mu.Unlock()
		if len(read) == 0 && len(c.calls) > 0 {
			yield(llm.Delta{Text: "Let me see.", ToolCalls: c.calls, Usage: execution.Usage{OutputTokens: 1}}, nil)
			return
		}
		yield(llm.Delta{Text: "read [" + strings.Join(read, "|") + "]", Usage: execution.Usage{OutputTokens: 1}}, nil)
	}
}

// recordingTool returns a tool that counts its call and records it in the session's state.
func (c *callCounts) recordingTool(t *testing.T, effect execution.Effect) tool.Tool {
	t.Helper()
	type in struct {
		What string `json:"what"`
	}
	one, err := tool.Func(string(effect), "A tool of the test.", func(ctx context.Context, in in) (string, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.toolCalls[string(effect)+" "+in.What+" "+tool.IdempotencyKey(ctx)]++
		return "did " + in.What, hook.InTool(ctx).Memory().Set("did "+in.What, true)
	})
	require.NoError(t, err)
	return tool.WithEffect(effect, one)
}

func newToolCall(name, argument, value string) conversation.ToolCall {
	return conversation.ToolCall{ID: name + value, Name: name, Arguments: fmt.Sprintf(`{%q: %q}`, argument, value)}
}

// workerAgent returns an agent that calls a tool of each effect once.
func (c *callCounts) workerAgent(t *testing.T, name string) *agent.Agent {
	t.Helper()
	return build(t, agent.Config{
		Name: name, Handlers: c.handlers,
		Tools: []tool.Tool{c.recordingTool(t, execution.Read), c.recordingTool(t, execution.Idempotent)},
		Model: callingModel{c, []conversation.ToolCall{newToolCall("read", "what", name+" r"), newToolCall("idempotent", "what", name+" i")}},
	})
}

// bossAgent returns an agent that calls two agents in parallel, and then an agent that is a sequence.
func (c *callCounts) bossAgent(t *testing.T) *agent.Agent {
	t.Helper()
	var tools []tool.Tool
	calls := []conversation.ToolCall{newToolCall("idempotent", "what", "boss i")}
	pair := mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "pair"}, c.workerAgent(t, "one"), c.workerAgent(t, "two")))
	for _, a := range []*agent.Agent{c.workerAgent(t, "aide"), pair} {
		inner, err := flow.AsTool(a, flow.AsToolConfig{})
		require.NoError(t, err)
		tools, calls = append(tools, inner), append(calls, newToolCall(a.Name(), "request", "help"))
	}
	return build(t, agent.Config{
		Name: "boss", Handlers: c.handlers, Parallel: true, Tools: append(tools, c.recordingTool(t, execution.Idempotent)), Model: callingModel{c, calls},
	})
}

// repeatingFlow returns a flow that repeats until a tool ends the second round.
func (c *callCounts) repeatingFlow(t *testing.T) *agent.Agent {
	t.Helper()
	type none struct{}
	count, err := tool.Func("count", "Counts.", func(ctx context.Context, _ none) (string, error) {
		in := hook.InTool(ctx)
		n := 0
		_ = in.Memory().Read(ctx, "temp:rounds", &n)
		if n++; n == 2 {
			in.Escalate()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.toolCalls["count "+tool.IdempotencyKey(ctx)]++
		return fmt.Sprint(n), in.Memory().Set("temp:rounds", n)
	})
	require.NoError(t, err)
	return build(t, agent.Config{Name: "counting", Handlers: c.handlers, Tools: []tool.Tool{tool.WithEffect(execution.Idempotent, count)}, Model: callingModel{
		c,
		[]conversation.ToolCall{{Name: "count"}},
	}})
}

// flowOfEveryKind returns a flow that combines all kinds: sequence, parallel, repeat, and agents as tools.
func (c *callCounts) flowOfEveryKind(t *testing.T) *agent.Agent {
	t.Helper()
	inner := mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "inner"}, c.workerAgent(t, "c"), c.workerAgent(t, "d")))
	deep := mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "deep"}, c.workerAgent(t, "e"), c.workerAgent(t, "f")))
	beside := mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "beside"}, c.workerAgent(t, "b"), inner, deep, c.bossAgent(t)))
	rounds := mustBuildFlow(t)(flow.Repeat(agent.Config{Name: "rounds"}, 5, c.repeatingFlow(t)))
	return mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "all", OutputKey: "answer"}, c.workerAgent(t, "a"), beside, rounds, c.workerAgent(t, "z")))
}

func (c *callCounts) invocation(j *journal) agent.Invocation {
	step := questionStep("Do it.")
	step.TurnID, step.Journal, step.Attempt = "turn-1", j, 1
	return agent.Invocation{Step: step}
}

// A turn that resumes a failed turn calls its tools with the idempotency keys of the failed turn.
// Req: OC-27
func TestFlow_ResumeUsesTheKeysOfTheFailedTurn(t *testing.T) {
	w := &callCounts{toolCalls: map[string]int{}}
	_, _, err := runAndDescribe(t.Context(), w.flowOfEveryKind(t), w.invocation(&journal{entries: map[string]execution.Entry{}}))
	require.NoError(t, err)
	before := slices.Sorted(maps.Keys(w.toolCalls))
	w.toolCalls = map[string]int{}
	inv := w.invocation(&journal{entries: map[string]execution.Entry{}})
	inv.Step.TurnID, inv.Step.OriginTurnID = "turn-2", "turn-1"
	_, _, err = runAndDescribe(t.Context(), w.flowOfEveryKind(t), inv)
	require.NoError(t, err)
	require.Equal(t, before, slices.Sorted(maps.Keys(w.toolCalls)))
}

// Wherever the worker is lost, the next attempt has the same result. It repeats no finished model call or tool
// call, and every call has the same key in all attempts.
//
// Req: AD-28, AD-29
func TestFlow_ContinuesAfterALostWorker(t *testing.T) {
	defer goleak.VerifyNone(t)
	w := &callCounts{toolCalls: map[string]int{}}
	flow := w.flowOfEveryKind(t)
	j := &journal{entries: map[string]execution.Entry{}}
	_, want, err := runAndDescribe(t.Context(), flow, w.invocation(j))
	require.NoError(t, err)
	require.Empty(t, j.conflicts)
	partial, _ := memory.PartialMessage(slices.Collect(maps.Values(j.entries)))
	require.Equal(t, 1, strings.Count(partial.Text, "read [did aide"), "the text of a tool agent is only in the reply of its parent")
	total, calls := w.modelCalls, slices.Sorted(maps.Keys(w.toolCalls))
	require.Equal(t, 26, total)
	require.Len(t, calls, 2*10+1+2)
	require.Len(t, want.State, 2*7+2, "agents that are tools leave no state")
	require.Equal(t, total, want.Result.Usage.ModelCalls)

	after := 0
	for ; ; after++ {
		w.toolCalls = map[string]int{}
		j = &journal{entries: map[string]execution.Entry{}}
		lost, left := false, after
		for _, err := range flow.Run(t.Context(), w.invocation(j)) {
			require.NoError(t, err)
			if lost = left == 0; lost {
				break
			}
			left--
		}
		if !lost {
			break
		}
		replayed, asked := j.replies(), w.modelCalls
		inv := w.invocation(j)
		inv.Step.Attempt = 2
		_, got, err := runAndDescribe(t.Context(), flow, inv)
		require.NoError(t, err, "lost after %d events", after)
		require.Empty(t, j.conflicts, "lost after %d events", after)
		require.Equal(t, total-replayed, w.modelCalls-asked, "lost after %d events: repeated model calls", after)
		require.Equal(t, calls, slices.Sorted(maps.Keys(w.toolCalls)), "lost after %d events: every call and its key", after)
		got.Duration = want.Duration
		require.Empty(t, gocmp.Diff(want, got), "lost after %d events", after)
	}
	require.Greater(t, after, 140, "the run was long enough")
}

// A tool's changes of state are applied when its result comes from the journal.
func TestAgent_NewAttemptKeepsChangesOfState(t *testing.T) {
	w := &callCounts{toolCalls: map[string]int{}}
	j := &journal{entries: map[string]execution.Entry{}}
	for e, err := range w.workerAgent(t, "a").Run(t.Context(), w.invocation(j)) {
		require.NoError(t, err)
		if done, ok := e.Payload.(event.ToolFinished); ok && done.Tool == "idempotent" {
			break
		}
	}
	_, done, err := runAndDescribe(t.Context(), w.workerAgent(t, "a"), w.invocation(j))
	require.NoError(t, err)
	require.Len(t, w.toolCalls, 2)
	require.Equal(t, []string{"did a i", "did a r"}, slices.Sorted(maps.Keys(done.State)))
}

// An at-most-once tool runs only once, also inside a flow.
func TestFlow_RunsAnAtMostOnceToolOnce(t *testing.T) {
	for after := 0; ; after++ {
		w := &callCounts{toolCalls: map[string]int{}}
		j := &journal{entries: map[string]execution.Entry{}}
		once := func(name string) *agent.Agent {
			return build(t, agent.Config{Name: name, Tools: []tool.Tool{w.recordingTool(t, execution.AtMostOnce)}, Model: callingModel{
				w,
				[]conversation.ToolCall{newToolCall("at_most_once", "what", name)},
			}})
		}
		team := func() *agent.Agent {
			aide, err := flow.AsTool(once("aide"), flow.AsToolConfig{})
			require.NoError(t, err)
			require.Equal(t, execution.AtMostOnce, tool.EffectOf(aide))
			boss := build(t, agent.Config{Name: "boss", Tools: []tool.Tool{aide}, Model: callingModel{w, []conversation.ToolCall{newToolCall("aide", "request",
				"help")}}})
			return mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "all"}, once("a"), boss, once("b")))
		}
		lost, left := false, after
		for _, err := range team().Run(t.Context(), w.invocation(j)) {
			require.NoError(t, err)
			if lost = left == 0; lost {
				break
			}
			left--
		}
		_, _, err := runAndDescribe(t.Context(), team(), w.invocation(j))
		require.NoError(t, err)
		for did, times := range w.toolCalls {
			require.Equal(t, 1, times, did)
		}
		if !lost {
			require.Len(t, w.toolCalls, 3)
			return
		}
	}
}

// Call numbers are unique in every composition of agents, and do not depend on timing.
func TestFlow_CallNumbersAreTheSameInEveryRun(t *testing.T) {
	var before []string
	for range 5 {
		w := &callCounts{toolCalls: map[string]int{}}
		j := &journal{entries: map[string]execution.Entry{}}
		_, _, err := runAndDescribe(t.Context(), w.flowOfEveryKind(t), w.invocation(j))
		require.NoError(t, err)
		require.Empty(t, j.conflicts)
		var now []string
		for _, e := range slices.SortedFunc(maps.Values(j.entries), func(a, b execution.Entry) int { return cmp.Compare(a.Number, b.Number) }) {
			now = append(now, fmt.Sprint(e.Number, e.Phase, e.Tool, e.Digest, e.Reply.Author, e.Reply.Text))
			require.LessOrEqual(t, e.Number, 400)
		}
		if before != nil {
			require.Empty(t, gocmp.Diff(before, now))
		}
		before = now
	}
}

// Each event of a child has the child's branch in the flow.
func TestFlow_BranchesNest(t *testing.T) {
	w := &callCounts{toolCalls: map[string]int{}}
	branches := map[string]bool{}
	for e, err := range w.flowOfEveryKind(t).Run(t.Context(), agent.Invocation{Step: questionStep("Do it.")}) {
		require.NoError(t, err)
		if e.Kind() != (event.UserInput{}).Kind() {
			branches[e.Author+" "+e.Branch] = true
		}
	}
	require.Equal(t, []string{
		"a all.a", "all ", "b all.beside.b", "beside all.beside", "boss all.beside.boss", "c all.beside.inner.c",
		"counting all.rounds.counting", "d all.beside.inner.d", "deep all.beside.deep", "e all.beside.deep.e", "f all.beside.deep.f", "inner all.beside.inner",
		"rounds all.rounds", "z all.z",
	}, slices.Sorted(maps.Keys(branches)))
}
