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
			w.requireValid(in.Turn.Turn().Messages(), failed)
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

func (w *randomModel) Name() string { return "wild/model" }

// Generate implements llm.Model. It calls existing and missing tools, under ids that are missing, repeated or
// valid.
func (w *randomModel) Generate(_ context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	require.NoError(w.t, conversation.CheckRounds(req.Messages))
	ids := map[string]bool{}
	for _, m := range req.Messages {
		for _, c := range m.ToolCalls {
			require.False(w.t, ids[c.ID], "id %s twice", c.ID)
			ids[c.ID] = true
		}
	}
	return func(yield func(llm.Delta, error) bool) {
		if len(w.replies) == 0 {
			yield(llm.Delta{Text: "done"}, nil)
			return
		}
		reply := w.replies[0]
		w.replies = w.replies[1:]
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

// handlers returns one handler for each event of a turn.
func (w *randomModel) handlers() []hook.Handler {
	all := []hook.Handler{
		hook.BeforeTools(func(_ context.Context, r *hook.Round) error {
			for _, c := range r.Calls {
				w.rounds[r.Iteration()] = append(w.rounds[r.Iteration()], c.ID)
			}
			return nil
		}),
		hook.BeforeLLM(func(_ context.Context, r *hook.LLMRequest) error {
			if w.takeMove(6) {
				r.Respond("I know", toolCall("x", "echo", "of a handler"))
			}
			return nil
		}),
		hook.OnLLMError(func(_ context.Context, f *hook.LLMFailure) error {
			if !w.takeMove(7) {
				f.Respond("instead")
			}
			return nil
		}),
		hook.AfterLLM(func(_ context.Context, r *hook.LLMReply) error {
			switch {
			case w.takeMove(6):
				r.ToolCalls = nil
			case w.takeMove(7):
				r.ToolCalls = append(r.ToolCalls, toolCall("x", "echo", "more"))
			}
			return nil
		}),
		hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
			switch {
			case w.takeMove(6):
				c.Answer("I know")
			case w.takeMove(7):
				c.Refuse("no")
			case w.takeMove(9):
				c.Wait("mind it", deadline)
				w.waitingCalls[c.ID] = c.CanWait()
			case w.takeMove(8):
				c.Arguments, c.ID, c.Name = `{"word": "other"}`, "mine", "mine"
			}
			return nil
		}),
		hook.AfterEachTool(func(_ context.Context, c *hook.Call) error {
			if w.takeMove(6) {
				c.Text, c.ID = "", "mine"
			}
			return nil
		}),
	}
	for _, name := range append(hooks, "before_each_tool") {
		if name != "before_agent" {
			all = append(all, handlerFor(name, func(t *hook.Turn) error { return w.makeMove(name, t) }))
		}
	}
	return all
}

// takeMove reports whether the next move has the given kind. If so, it removes the move.
func (w *randomModel) takeMove(kind int) bool {
	if len(w.moves) == 0 || w.moves[0] != kind {
		return false
	}
	w.moves = w.moves[1:]
	return true
}

// makeMove makes the next move, if it is one that every handler may make.
func (w *randomModel) makeMove(name string, t *hook.Turn) error {
	if len(w.moves) == 0 || w.moves[0] >= 6 && w.moves[0] <= 9 {
		return nil
	}
	move := w.moves[0]
	w.moves = w.moves[1:]
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
			w.replaced = true
		}
	case 5:
		m := t.Messages() // a forbidden move
		if last := len(m) - 1; m[last].Role == conversation.RoleTool {
			m[last].ToolCallID = "another"
		} else {
			m[last] = conversation.Message{Role: conversation.RoleTool, ToolCallID: "none"}
		}
		w.changedInPlace = true
	default:
		if move%2 == 0 {
			t.Add(conversation.User(fmt.Sprintf("add %d %s", t.Iteration(), name)))
		}
	}
	return nil
}

// requireValid requires that the result of a turn is valid.
func (w *randomModel) requireValid(messages []conversation.Message, failed error) {
	if failed == nil {
		last := w.events[len(w.events)-1].Payload
		require.IsType(w.t, event.Answer{}, last)
	} else {
		require.True(w.t, failure.ModeOf(failed) != failure.Unknown || failed.Error() == "down", "%v", failed)
	}
	if w.changedInPlace {
		return // the loop detected it before a model saw it; see Generate
	}
	if failed == nil {
		messages = w.requirePairs(messages)
		require.NoError(w.t, conversation.CheckRounds(messages))
	}
	if w.replaced {
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
		for _, id := range w.rounds[iteration] {
			require.Less(w.t, results[id], i, "%s of iteration %d stands in its round", name, iteration)
		}
		if i > 0 && name != "after_tools" && name != "after_iteration" && name != "on_stop_signal" {
			require.NotEqual(w.t, fmt.Sprintf("add %d after_tools", iteration), messages[i-1].Text, "AfterTools comes last")
		}
	}
}

// requirePairs requires that each call of each round has one result, in order, and that each started tool has
// ended. It returns the messages without a waiting round. Such a round may only be last, and has only the results
// before its first waiting call.
func (w *randomModel) requirePairs(messages []conversation.Message) []conversation.Message {
	var asked, answered []string
	started, finished, waiting := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, e := range w.events {
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
			require.Equal(w.t, 1, started[p.CallID], "%s ended and did not begin", p.CallID)
			finished[p.CallID]++
		case event.ToolPending:
			waiting[p.CallID] = true
		}
	}
	require.Equal(w.t, started, finished)
	if len(waiting) == 0 {
		require.Equal(w.t, asked, answered)
		return messages
	}
	for id := range waiting {
		require.True(w.t, w.waitingCalls[id])
		require.Zero(w.t, started[id])
		require.NotContains(w.t, answered, id)
	}
	last := len(messages) - 1
	for messages[last].Role == conversation.RoleTool {
		require.Contains(w.t, asked, messages[last].ToolCallID)
		last--
	}
	require.NotEmpty(w.t, messages[last].ToolCalls)
	require.Equal(w.t, fmt.Sprint(asked[:len(answered)]), fmt.Sprint(answered))
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
