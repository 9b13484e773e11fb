package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// approvalDeadline is until when the calls of these tests wait for an approval.
var approvalDeadline = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// askApproval is a handler that makes a call wait for an approval if its tool may do more than read.
var askApproval = hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
	if c.Effect != execution.Read && !c.AtClient && c.Name != "ask" {
		c.Wait("It sends.", approvalDeadline)
	}
	return nil
})

// waitScenario is a step that spans several turns, with the tools and the journal that the turns share.
type waitScenario struct {
	t        *testing.T
	tools    *tool.Set
	model    *scripted.Model
	handlers []hook.Handler
	parallel bool
	journal  *fakeJournal
	mu       sync.Mutex
	toolRuns []string
	hooks    []string // hooks that ran in the last turn
	events   []event.Payload
}

func newWaitScenario(t *testing.T, script ...scripted.Reply) *waitScenario {
	t.Helper()
	o := &waitScenario{t: t, model: scripted.New(script...), journal: &fakeJournal{durableOnSync: true}, handlers: []hook.Handler{askApproval}}
	var all []tool.Tool
	for name, effect := range map[string]execution.Effect{"look": execution.Read, "send": execution.AtMostOnce} {
		one, err := tool.Func(name, "A tool of the test.", func(_ context.Context, in wordArgs) (string, error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.toolRuns = append(o.toolRuns, name+" "+in.Word)
			return "did " + in.Word, nil
		})
		require.NoError(t, err)
		all = append(all, tool.WithEffect(effect, one))
	}
	client, err := tool.Client("screen", "Reads the screen.",
		json.RawMessage(`{"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}`))
	require.NoError(t, err)
	o.tools, err = tool.NewSet(append(all, newWatchedTools(t, nil)[2], client)...)
	require.NoError(t, err)
	return o
}

// runTurn runs the next turn of the step with the given answers to waiting calls.
func (w *waitScenario) runTurn(answers ...execution.Answer) runOutcome {
	w.t.Helper()
	out, err := w.tryTurn(answers...)
	require.NoError(w.t, err)
	return out
}

func (w *waitScenario) tryTurn(answers ...execution.Answer) (runOutcome, error) {
	w.hooks = nil
	handlers := w.handlers
	for _, name := range hooks {
		handlers = append(handlers, handlerFor(name, func(*hook.Turn) error { w.hooks = append(w.hooks, name); return nil }))
	}
	in := newInput("go", handlers...)
	in.Journal, in.IdempotencyKey, in.Answers = w.journal, idempotencyKey, answers
	in.CallID = func(number int) string { return pendingcall.ID(2, 7, number) }
	var got eventRecorder
	out, err := runToEnd(w.t.Context(), loop.Loop{Model: w.model, Tools: w.tools, Parallel: w.parallel}, in, got.emit)
	w.events, w.journal.pending = got.events, nil
	return out, err
}

// toolEvents returns the tool events and the warnings of the last turn.
func (w *waitScenario) toolEvents() (all []string) {
	for _, e := range w.events {
		switch p := e.(type) {
		case event.ToolStarted:
			all = append(all, "started "+p.CallID)
		case event.ToolFinished:
			all = append(all, fmt.Sprintf("%s %s", p.Status, p.CallID))
		case event.ToolPending:
			all = append(all, "waits "+p.CallID)
		case event.Warning:
			all = append(all, p.Reason)
		}
	}
	return all
}

// resultTexts returns the texts that the model reads as results of its calls.
func resultTexts(out runOutcome) (all []string) {
	for _, m := range out.Messages {
		if m.Role == conversation.RoleTool {
			all = append(all, m.Text)
		}
	}
	return all
}

func answerTo(verdict execution.Verdict, number int, text string) execution.Answer {
	return execution.Answer{ID: pendingcall.ID(1, 7, number), Verdict: verdict, Text: text}
}

// A waiting call ends the turn in the middle of its round. The turn that continues repeats nothing.
// Req: LP-16, LP-32, AD-32
func TestLoop_EndsAtAWaitingCallAndContinuesWithIt(t *testing.T) {
	o := newWaitScenario(t, toolCallsReply("look", "send", "look"), scripted.Say("done"))
	out := o.runTurn()
	waiting := execution.Pending{
		ID: "2-7-3", CallID: "2", Tool: "send", Arguments: `{"word": "2"}`, Needs: execution.NeedApproval, Risk: execution.AtMostOnce, Reason: "It sends.", Until: approvalDeadline,
	}
	want := event.Answer{Text: "send waits for an approval.", Reason: event.InputRequired, Iterations: 1, Pending: []execution.Pending{waiting}}
	require.Empty(t, gocmp.Diff(want, out.Answer))
	require.Equal(t, []string{"look 1"}, o.toolRuns)
	require.Equal(t, []string{"started 1", "success 1", "waits 2"}, o.toolEvents())
	require.Equal(t, []string{"did 1"}, resultTexts(out))
	require.Equal(t, []string{"after_user_input", "before_iteration", "before_llm", "after_llm", "before_tools", "after_each_tool"}, o.hooks,
		"and none after it")
	for _, e := range o.journal.durable {
		require.Less(t, e.Number, 3, "neither this call nor a later one")
	}
	require.Len(t, o.journal.durable, 2)

	again := o.runTurn()
	require.Empty(t, gocmp.Diff(want, again.Answer), "without an answer")

	out = o.runTurn(answerTo(execution.Approve, 3, ""))
	require.Equal(t, "done", out.Text)
	require.Equal(t, []string{"look 1", "send 2", "look 3"}, o.toolRuns)
	require.Equal(t, []string{"success 1", "started 2", "success 2", "started 3", "success 3"}, o.toolEvents())
	require.Equal(t, []string{"did 1", "did 2", "did 3"}, resultTexts(out))
	require.Len(t, o.model.Requests(), 2)
}

// Req: LP-32, AD-32, OC-33, CO-64
func TestLoop_AppliesAnswers(t *testing.T) {
	late := answerTo(execution.Approve, 2, "")
	late.Late = true
	for name, tc := range map[string]struct {
		tool   string
		answer execution.Answer
		result string
		events []string
		text   string
	}{
		"approved": {"send", answerTo(execution.Approve, 2, ""), "did 1", []string{"started 1", "success 1"}, "done"},
		"denied": {
			"send", answerTo(execution.Deny, 2, ""), "Not run: the user does not allow send.",
			[]string{"started 1", "interrupted 1"},
			"done",
		},
		"denied with a reason": {"send", answerTo(execution.Deny, 2, "not today"), "Not run: the user does not allow send: not today", []string{
			"started 1",
			"interrupted 1",
		}, "done"},
		"stopped": {
			"send", answerTo(execution.Stop, 2, "no"), "Not run: the turn was stopped before it.", nil,
			"The turn was stopped: the user does not allow send: no",
		},
		"too late": {"send", late, "Not run: nobody approved it within 5m0s.", []string{"APPROVAL_TIMEOUT", "started 1", "interrupted 1"}, "done"},
		"ran":      {"screen", answerTo(execution.Succeed, 2, "seen"), "seen", []string{"started 1", "success 1"}, "done"},
		"failed":   {"screen", answerTo(execution.Fail, 2, "it is dark"), "Error: it is dark", []string{"started 1", "error 1"}, "done"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newWaitScenario(t, toolCallsReply(tc.tool), toolCallsReply("send"), scripted.Say("done"))
				o.handlers = []hook.Handler{hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
					if !c.AtClient && c.Iteration() == 1 {
						require.True(t, c.CanWait())
						a, _ := c.Answered()
						require.Equal(t, tc.answer, map[bool]execution.Answer{true: a, false: tc.answer}[a.ID != ""])
						c.Wait("", time.Now().Add(5*time.Minute))
					}
					return nil
				})}
				out := o.runTurn()
				require.Equal(t, []string{"waits 1"}, o.toolEvents())
				require.Len(t, out.Pending, 1)

				o.model = scripted.New(scripted.Say("done"))
				out = o.runTurn(tc.answer)
				require.Equal(t, tc.text, out.Text)
				require.Equal(t, []string{tc.result}, resultTexts(out))
				require.Equal(t, tc.events, o.toolEvents())
				require.Equal(t, tc.result == "did 1", len(o.toolRuns) == 1)
				for _, e := range o.journal.durable {
					require.False(t, tc.text != "done" && e.Number == 2)
				}
			})
		})
	}
}

// A decision remains valid in later turns, which do not receive the answer again. An answer to a finished call is
// ignored.
// Req: LP-32
func TestLoop_KeepsDecisionsAcrossTurns(t *testing.T) {
	for _, parallel := range []bool{false, true} {
		o := newWaitScenario(t, toolCallsReply("send", "screen", "send", "send"), scripted.Say("done"))
		o.parallel = parallel
		o.runTurn()
		o.runTurn(answerTo(execution.Deny, 2, "no"))
		o.runTurn(answerTo(execution.Succeed, 3, "seen"), answerTo(execution.Approve, 2, ""))
		late := answerTo(execution.Approve, 4, "")
		late.Late = true
		out := o.runTurn(late)
		require.Equal(t, []string{"waits 4"}, o.toolEvents()[len(o.toolEvents())-1:])
		require.Len(t, out.Pending, 1)
		out = o.runTurn(answerTo(execution.Approve, 5, ""))
		require.Equal(t, "done", out.Text)
		require.Equal(t, []string{"Not run: the user does not allow send: no", "seen", "Not run: nobody approved it in time.", "did 4"}, resultTexts(out)[:4])
		require.Equal(t, []string{"send 4"}, o.toolRuns)
		require.Len(t, o.model.Requests(), 2)
	}
}

// In a concurrent round, calls that need not wait run to their end, and all waiting calls are collected.
// Req: LP-16, C-9
func TestLoop_CollectsTheWaitingCallsOfARound(t *testing.T) {
	o := newWaitScenario(t, toolCallsReply("send", "look", "screen", "nothing", "send"), scripted.Say("done"))
	o.parallel = true
	out := o.runTurn()
	require.Equal(t, "send waits for an approval, and screen waits for a result of the client.", out.Text)
	require.Equal(t, []string{"2-7-2", "2-7-4", "2-7-6"}, []string{out.Pending[0].ID, out.Pending[1].ID, out.Pending[2].ID})
	require.Equal(t, execution.NeedResult, out.Pending[1].Needs)
	require.Equal(t, "The agent test asks for screen: Reads the screen.", out.Pending[1].Reason)
	require.Zero(t, out.Pending[1].Until)
	require.Equal(t, []string{"started 2", "started 4", "success 2", "not_found 4", "waits 1", "waits 3", "waits 5"}, o.toolEvents())
	require.Equal(t, []string{"look 2"}, o.toolRuns)

	out = o.runTurn(answerTo(execution.Approve, 6, ""), answerTo(execution.Deny, 2, ""))
	require.Equal(t, "screen waits for a result of the client.", out.Text)
	out = o.runTurn(answerTo(execution.Succeed, 4, "seen"))
	require.Equal(t, "done", out.Text)
	require.Equal(t, []string{"look 2", "send 5"}, o.toolRuns)
	require.Equal(t, []string{"Not run: the user does not allow send.", "did 2", "seen"}, resultTexts(out)[:3])
	require.Equal(t, 2, len(o.model.Requests()))
}

// If a call waits and a tool also asks the user a question, the waiting call comes first and the question is not
// lost.
// Req: LP-16
func TestLoop_AsksTheUserOnceNoCallWaits(t *testing.T) {
	for _, parallel := range []bool{false, true} {
		o := newWaitScenario(t, toolCallsReply("ask", "send"))
		o.parallel = parallel
		require.Equal(t, "send waits for an approval.", o.runTurn().Text)
		out := o.runTurn(answerTo(execution.Approve, 3, ""))
		require.Equal(t, "Which one?", out.Text)
		require.Equal(t, event.InputRequired, out.Reason)
		require.Empty(t, out.Pending)
		require.Equal(t, []string{"send 2"}, o.toolRuns)
	}
}

// Req: CO-64
func TestLoop_NoCallWaitsWithoutAJournal(t *testing.T) {
	o := newWaitScenario(t)
	call := loop.Loop{Model: scripted.New(toolCallsReply("send", "screen"), scripted.Say("done")), Tools: o.tools}
	out, err := runToEnd(t.Context(), call, newInput("go", askApproval), ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, "done", out.Text)
	require.Equal(t, []string{
		"Not run: send needs an approval, and no person can be asked for it.",
		"Error: screen runs at the client of the agent, and nobody can be asked here; run the agent in a session, whose turns can wait: local.Open, or the mesh",
	}, resultTexts(out))
	require.Equal(t, string(failure.AgentState), out.Calls[1].ErrorType)

	in := newInput("go", askApproval)
	in.Journal = o.journal
	for e, err := range call.RunTools(t.Context(), in, toolCall("1", "send", "1")) {
		require.NoError(t, err)
		require.NotEqual(t, event.ToolPending{}.Kind(), e.Kind(), "no turn could continue it")
	}
	require.Empty(t, o.toolRuns)
}

// Req: CO-37
func TestLoop_ChecksArgumentsBeforeACallWaits(t *testing.T) {
	o := newWaitScenario(t, scripted.Call(conversation.ToolCall{ID: "1", Name: "screen", Arguments: `{"world": 1}`}), scripted.Say("done"))
	out := o.runTurn()
	require.Equal(t, "done", out.Text)
	require.Contains(t, resultTexts(out)[0], "the arguments of screen do not fit")
	require.Contains(t, resultTexts(out)[0], "(required: word; all: word; provided: world)")

	long := strings.Repeat("x", conversation.MaxMessageBytes)
	o = newWaitScenario(t, scripted.Call(toolCall("1", "send", long)), scripted.Say("done"))
	out = o.runTurn()
	require.Contains(t, resultTexts(out)[0], "a call that waits may have 262144")
	require.Empty(t, o.toolRuns)
}

// An approved tool that was running when its worker was lost is in doubt like any other tool.
func TestLoop_DoesNotAskAboutACallInDoubt(t *testing.T) {
	o := newWaitScenario(t, toolCallsReply("send"), scripted.Say("done"))
	o.runTurn()
	in := newInput("go", askApproval)
	in.Journal, in.Answers = o.journal, []execution.Answer{{ID: "0-0-2", Verdict: execution.Approve}}
	_, err := runToEnd(t.Context(), loop.Loop{Model: o.model, Tools: o.tools}, in, (&killedConsumer{eventsLeft: 2}).emit)
	require.ErrorIs(t, err, errKilled)
	require.Equal(t, []string{"send 1"}, o.toolRuns)
	o.journal.pending = nil

	for _, answers := range [][]execution.Answer{{answerTo(execution.Approve, 2, "")}, {answerTo(execution.Deny, 2, "")}, nil} {
		o.model = scripted.New(scripted.Say("done"))
		out := o.runTurn(answers...)
		require.Contains(t, resultTexts(out)[0], "UNKNOWN_OUTCOME")
		require.Equal(t, []string{"send 1"}, o.toolRuns)
	}
}

// A client tool that also needs an approval waits first for one approval. Then it waits for the client until the
// result arrives.
// Req: LP-32, AD-32
func TestLoop_PassesAnApprovedCallToTheClient(t *testing.T) {
	o := newWaitScenario(t, toolCallsReply("screen"), scripted.Say("done"))
	o.handlers = []hook.Handler{hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error { c.Wait("It reads all.", approvalDeadline); return nil })}
	require.Equal(t, execution.NeedApproval, o.runTurn().Pending[0].Needs)
	for _, answers := range [][]execution.Answer{{answerTo(execution.Approve, 2, "")}, nil, nil} {
		require.Equal(t, execution.NeedResult, o.runTurn(answers...).Pending[0].Needs)
	}
	out := o.runTurn(answerTo(execution.Succeed, 2, "seen"))
	require.Equal(t, []string{"seen"}, resultTexts(out))
	require.Equal(t, "done", out.Text)
}

// All completed work is durable before the pending calls are emitted.
func TestLoop_SyncsBeforeItEmitsPendingCalls(t *testing.T) {
	o := newWaitScenario(t, scripted.Say("I know."))
	o.handlers = append(o.handlers, hook.AfterLLM(func(_ context.Context, r *hook.LLMReply) error {
		r.ToolCalls = toolCallsReply("screen").ToolCalls
		return nil
	}))
	out := o.runTurn()
	require.Len(t, out.Pending, 1)
	require.Equal(t, 1, o.journal.syncCount)
	require.Len(t, o.journal.durable, 1, "also the reply that a handler added a call to")

	o = newWaitScenario(t, toolCallsReply("screen"))
	o.journal.syncErr = failure.New(failure.Fenced, "test", "another worker has the step")
	_, err := o.tryTurn()
	require.ErrorIs(t, err, o.journal.syncErr)
	require.Empty(t, o.toolEvents())
}
