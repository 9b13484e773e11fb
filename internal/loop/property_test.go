package loop_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Messages stay in order, whatever models and handlers do. The test runs thousands of turns in which models and
// handlers make random moves and also make calls wait.
// Req: C-11, CO-29, CO-31, CO-33, CO-34
func TestLoop_KeepsMessagesInOrderDespiteHandlers(t *testing.T) {
	set, err := tool.NewSet(newWatchedTools(t, nil)[:3]...) // echo, fail and ask
	require.NoError(t, err)
	for range 20 {
		rapid.Check(t, func(rt *rapid.T) {
			w := &randomModel{
				t:            rt,
				moves:        rapid.SliceOfN(rapid.IntRange(0, 60), 0, 40).Draw(rt, "moves"),
				replies:      rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 3*4-1), 0, 4), 0, 4).Draw(rt, "replies"),
				rounds:       map[int][]string{},
				waitingCalls: map[string]bool{},
			}
			in := newInput("go", w.handlers()...)
			in.Journal = map[bool]execution.Journal{true: &fakeJournal{}}[rapid.Bool().Draw(rt, "journal")]
			l := loop.Loop{Model: w, Tools: set, MaxIterations: 4, Parallel: rapid.Bool().Draw(rt, "parallel")}
			var failed error
			for e, err := range l.Run(t.Context(), in) {
				if err != nil {
					failed = err
					continue
				}
				w.events = append(w.events, e)
			}
			w.requireValid(in.Control.Turn().Messages(), failed)
		})
	}
}

// randomModel provides a model and handlers that make random moves. The moves are drawn before the turn and made in
// order.
type randomModel struct {
	t       require.TestingT
	moves   []int
	replies [][]int // tool calls of each reply

	rounds         map[int][]string // ids of the calls, by iteration
	waitingCalls   map[string]bool  // ids of calls that were made to wait
	replaced       bool             // whether a handler replaced messages
	changedInPlace bool             // whether a handler changed messages in place
	events         []event.Event
}

func (rm *randomModel) Name() string { return "wild/model" }

// Generate implements llm.Model. It calls existing and missing tools, under ids that are missing, repeated or
// valid.
func (rm *randomModel) Generate(_ context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	require.NoError(rm.t, conversation.CheckRounds(req.Messages))
	ids := map[string]bool{}
	for _, m := range req.Messages {
		for _, c := range m.ToolCalls {
			require.False(rm.t, ids[c.ID], "id %s twice", c.ID)
			ids[c.ID] = true
		}
	}
	return func(yield func(llm.Delta, error) bool) {
		if len(rm.replies) == 0 {
			yield(llm.Delta{Text: "done"}, nil)
			return
		}
		reply := rm.replies[0]
		rm.replies = rm.replies[1:]
		var calls []conversation.ToolCall
		for _, n := range reply {
			calls = append(calls, toolCall([]string{"", "x", "y"}[n%3], []string{"echo", "fail", "ask", "nothing"}[n/3], "w"))
		}
		if len(calls) == 1 && calls[0].ID == "y" {
			yield(llm.Delta{}, errors.New("down"))
			return
		}
		yield(llm.Delta{Text: "so", ToolCalls: calls}, nil)
	}
}

// handlers returns handlers of the events of a turn, each of which makes the next move if it may.
func (rm *randomModel) handlers() []hook.Handler {
	all := []hook.Handler{
		hook.BeforeTools(func(_ context.Context, r *hook.Round) error {
			for _, c := range r.Calls {
				rm.rounds[r.Iteration()] = append(rm.rounds[r.Iteration()], c.ID)
			}
			return nil
		}),
		hook.BeforeLLM(func(_ context.Context, r *hook.LLMRequest) error {
			if rm.takeMove(6) {
				r.Respond("I know", toolCall("x", "echo", "of a handler"))
			}
			return nil
		}),
		hook.OnLLMError(func(_ context.Context, f *hook.LLMFailure) error {
			if !rm.takeMove(7) {
				f.Respond("instead")
			}
			return nil
		}),
		hook.AfterLLM(func(_ context.Context, r *hook.LLMReply) error {
			switch {
			case rm.takeMove(6):
				r.ToolCalls = nil
			case rm.takeMove(7):
				r.ToolCalls = append(r.ToolCalls, toolCall("x", "echo", "more"))
			}
			return nil
		}),
		hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
			switch {
			case rm.takeMove(6):
				c.Answer("I know")
			case rm.takeMove(7):
				c.Reject("no")
			case rm.takeMove(9):
				c.Wait("mind it", approvalDeadline)
				rm.waitingCalls[c.ID] = c.CanWait()
			case rm.takeMove(8):
				c.Arguments, c.ID, c.Name = `{"word": "other"}`, "mine", "mine"
			}
			return nil
		}),
		hook.AfterEachTool(func(_ context.Context, c *hook.Call) error {
			if rm.takeMove(6) {
				c.Text, c.ID = "", "mine"
			}
			return nil
		}),
	}
	for _, name := range append(hooks, "before_each_tool") {
		if name != "before_agent" {
			all = append(all, handlerFor(name, func(t *hook.Turn) error { return rm.makeMove(name, t) }))
		}
	}
	return all
}

// takeMove reports whether the next move has the given kind. If so, it removes the move.
func (rm *randomModel) takeMove(kind int) bool {
	if len(rm.moves) == 0 || rm.moves[0] != kind {
		return false
	}
	rm.moves = rm.moves[1:]
	return true
}

// makeMove makes the next move, if it is one that every handler may make.
func (rm *randomModel) makeMove(name string, t *hook.Turn) error {
	if len(rm.moves) == 0 || rm.moves[0] >= 6 && rm.moves[0] <= 9 {
		return nil
	}
	move := rm.moves[0]
	rm.moves = rm.moves[1:]
	switch move {
	case 0:
		t.Stop("enough")
	case 1:
		t.End()
	case 2:
		return failure.New(failure.PolicyBudget, "test", "broke")
	case 3:
		panic("oh")
	case 4:
		if t.Replace([]conversation.Message{conversation.User("all that was said")}) == nil {
			rm.replaced = true
		}
	case 5:
		m := t.Messages() // a forbidden move
		if last := len(m) - 1; m[last].Role == conversation.RoleTool {
			m[last].ToolCallID = "another"
		} else {
			m[last] = conversation.Message{Role: conversation.RoleTool, ToolCallID: "none"}
		}
		rm.changedInPlace = true
	default:
		if move%2 == 0 {
			t.Add(conversation.User(fmt.Sprintf("add %d %s", t.Iteration(), name)))
		}
	}
	return nil
}

// requireValid requires that the result of a turn is valid.
func (rm *randomModel) requireValid(messages []conversation.Message, failed error) {
	if failed == nil {
		last := rm.events[len(rm.events)-1].Payload
		require.IsType(rm.t, event.Answer{}, last)
	} else {
		require.True(rm.t, failure.ModeOf(failed) != failure.Unknown || failed.Error() == "down", "%v", failed)
	}
	if rm.changedInPlace {
		return // the loop detected it before a model saw it; see Generate
	}
	if failed == nil {
		messages = rm.requirePairs(messages)
		require.NoError(rm.t, conversation.CheckRounds(messages))
	}
	if rm.replaced {
		return
	}
	results := map[string]int{}
	for i, m := range messages {
		if m.Role == conversation.RoleTool {
			results[m.ToolCallID] = i
		}
	}
	for i, m := range messages {
		var iteration int
		var name string
		if _, err := fmt.Sscanf(m.Text, "add %d %s", &iteration, &name); err != nil || name == "before_iteration" || name == "before_llm" {
			continue
		}
		for _, id := range rm.rounds[iteration] {
			require.Less(rm.t, results[id], i, "%s of iteration %d stands in its round", name, iteration)
		}
		if i > 0 && name != "after_tools" && name != "after_iteration" && name != "on_stop_signal" {
			require.NotEqual(rm.t, fmt.Sprintf("add %d after_tools", iteration), messages[i-1].Text, "AfterTools comes last")
		}
	}
}

// requirePairs requires that each call of each round has one result, in order, and that each started tool has
// ended. It returns the messages without a waiting round. Such a round may only be last, and has only the results
// before its first waiting call.
func (rm *randomModel) requirePairs(messages []conversation.Message) []conversation.Message {
	var asked, answered []string
	started, finished, waiting := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, e := range rm.events {
		switch p := e.Payload.(type) {
		case event.MessageAppended:
			for _, c := range p.Message.ToolCalls {
				asked = append(asked, c.ID)
			}
			if p.Message.Role == conversation.RoleTool {
				answered = append(answered, p.Message.ToolCallID)
			}
		case event.ToolStarted:
			started[p.CallID]++
		case event.ToolFinished:
			require.Equal(rm.t, 1, started[p.CallID], "%s ended and did not begin", p.CallID)
			finished[p.CallID]++
		case event.ToolPending:
			waiting[p.CallID] = true
		}
	}
	require.Equal(rm.t, started, finished)
	if len(waiting) == 0 {
		require.Equal(rm.t, asked, answered)
		return messages
	}
	for id := range waiting {
		require.True(rm.t, rm.waitingCalls[id])
		require.Zero(rm.t, started[id])
		require.NotContains(rm.t, answered, id)
	}
	last := len(messages) - 1
	for messages[last].Role == conversation.RoleTool {
		require.Contains(rm.t, asked, messages[last].ToolCallID)
		last--
	}
	require.NotEmpty(rm.t, messages[last].ToolCalls)
	require.Equal(rm.t, fmt.Sprint(asked[:len(answered)]), fmt.Sprint(answered))
	return messages[:last]
}

// A handler that changes messages in place fails the turn before a model sees the messages.
// Req: C-11
func TestLoop_RejectsMessagesThatWereChangedInPlace(t *testing.T) {
	for name, spoil := range map[string]func(*hook.Turn){
		"a result of another call": func(t *hook.Turn) { t.Messages()[2].ToolCallID = "other" },
		"a result that is gone":    func(t *hook.Turn) { t.Messages()[2] = conversation.User("nothing") },
		"a result without a call":  func(t *hook.Turn) { t.Messages()[0] = conversation.Message{Role: conversation.RoleTool} },
		"one result added twice":   func(t *hook.Turn) { t.Add(t.Messages()[2]) },
		"a call without a result": func(t *hook.Turn) {
			t.Add(conversation.Message{Role: conversation.RoleAssistant, ToolCalls: toolCallsReply("echo").ToolCalls})
		},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := tool.NewSet(newWatchedTools(t, nil)...)
			require.NoError(t, err)
			model := &randomModel{t: t, replies: [][]int{{0}}}
			_, err = runToEnd(t.Context(), loop.Loop{Model: model, Tools: set}, newInput("go", hook.AfterTools(func(_ context.Context, r *hook.Round) error {
				spoil(r.Turn)
				return nil
			})), ignoreEvents)
			require.True(t, failure.Is(err, failure.AgentLogic), "%v", err)
			require.ErrorContains(t, err, "change them with Add and Replace")
		})
	}
}
