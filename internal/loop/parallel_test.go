package loop_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// barrierTools returns tools that wait until all of them have begun, and then end in the given order.
func barrierTools(t *testing.T, order []int) *tool.Set {
	t.Helper()
	var begun sync.WaitGroup
	begun.Add(len(order))
	turn := make([]chan struct{}, len(order)+1)
	for i := range turn {
		turn[i] = make(chan struct{})
	}
	close(turn[0])
	all := make([]tool.Tool, len(order))
	for place, which := range order {
		one, err := tool.Func(fmt.Sprintf("meet%d", which), "Meets the others.", func(ctx context.Context, _ wordArgs) (string, error) {
			begun.Done()
			begun.Wait()
			<-turn[place]
			close(turn[place+1])
			return fmt.Sprintf("met %d", which), hook.InTool(ctx).Memory().Set("last", which)
		})
		require.NoError(t, err)
		all[which] = one
	}
	set, err := tool.NewSet(all...)
	require.NoError(t, err)
	return set
}

// The tools of a round run concurrently; otherwise they would block forever in this test. In whatever order they
// end, handlers run one at a time, results and state changes keep the order of the calls, and the journal is the
// same.
// Req: C-9
func TestLoop_RunsToolsConcurrently(t *testing.T) {
	var first *fakeJournal
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log []string // changed by handlers without a lock, because they run one at a time
				note := func(name string) func(context.Context, *hook.Call) error {
					return func(_ context.Context, c *hook.Call) error { log = append(log, name+" "+c.ID); return nil }
				}
				j := &fakeJournal{}
				in := newInput("go", hook.BeforeEachTool(note("before")), hook.AfterEachTool(note("after")))
				in.Journal = j
				model := scripted.New(toolCallsReply("meet0", "meet1", "meet2"), scripted.Say("done"))
				var got eventRecorder
				out, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: barrierTools(t, order), Parallel: true}, in, got.emit)
				require.NoError(t, err)

				require.Equal(t, []string{"before 1", "before 2", "before 3", "after 1", "after 2", "after 3"}, log)
				for i, m := range model.Requests()[1].Messages[2:] {
					require.Equal(t, fmt.Sprint(i+1), m.ToolCallID)
					require.Equal(t, fmt.Sprintf("met %d", i), m.Text)
				}
				require.Equal(t, "done", out.Text)
				var emitted []string
				for _, e := range got.events {
					switch e := e.(type) {
					case event.ToolStarted:
						emitted = append(emitted, "started "+e.CallID)
					case event.ToolFinished:
						emitted = append(emitted, "finished "+e.CallID)
					}
				}
				require.Equal(t, []string{"started 1", "started 2", "started 3", "finished 1", "finished 2", "finished 3"}, emitted)
				first = cmp.Or(first, j)
				require.Empty(t, gocmp.Diff(first.durable, j.durable))
				require.JSONEq(t, "2", string(in.Control.ChangesToStore()["last"]))
			})
		})
	}
	var numbers []string
	for _, e := range first.durable {
		numbers = append(numbers, fmt.Sprint(e.Number, " ", e.Phase, " ", e.Tool))
	}
	require.Equal(t, []string{
		"1 done ", "2 intent meet0", "3 intent meet1", "4 intent meet2", "2 done meet0", "3 done meet1", "4 done meet2",
	}, numbers)
}

// deterministicModel is a model whose reply depends only on the request. It makes two rounds of tool calls and
// then answers. It also answers each question of a handler.
type deterministicModel struct{ callCount int }

func (dm *deterministicModel) Name() string { return "oracle/model" }

func (dm *deterministicModel) Generate(_ context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	dm.callCount++
	return func(yield func(llm.Delta, error) bool) {
		results := 0
		for _, m := range req.Messages {
			if m.Role == conversation.RoleTool {
				results++
			}
		}
		d := llm.Delta{Text: "Done."}
		switch last := req.Messages[len(req.Messages)-1].Text; {
		case strings.HasPrefix(last, "aside"):
			d.Text = "yes to " + last
		case results < 6:
			d = llm.Delta{ToolCalls: []conversation.ToolCall{toolCall("", "read", "a"), toolCall("", "idempotent", fmt.Sprint(results)), toolCall("",
				"nothing", "c")}}
		}
		yield(d, nil)
	}
}

// modelAskingHandlers returns handlers that ask the model at every possible event and add its reply to the
// conversation.
func modelAskingHandlers() []hook.Handler {
	var all []hook.Handler
	for _, name := range append(hooks, "before_each_tool") {
		switch name {
		case "before_agent", "on_llm_error", "on_stop_signal", "after_agent", "on_complete":
			continue
		}
		all = append(all, handlerFor(name, func(t *hook.Turn) error {
			said, err := t.Ask(context.Background(), llm.Request{Messages: []conversation.Message{conversation.User(fmt.Sprintf("aside %s %d", name,
				t.Iteration()))}})
			t.Add(conversation.User(said.Text))
			return err
		}))
	}
	return all
}

// finalState holds the messages and the state that a run leaves behind.
type finalState struct {
	runOutcome
	state map[string]json.RawMessage
}

// Wherever a worker dies and whatever its journal kept, the successor has the same messages in the same order and
// leaves the same state. This holds with and without concurrent tools and handlers that ask the model.
// Req: C-9
func TestRun_ResultDoesNotDependOnLostAttempts(t *testing.T) {
	for _, parallel := range []bool{false, true} {
		for _, lazy := range []bool{false, true} {
			for _, asks := range []bool{false, true} {
				t.Run(fmt.Sprintf("parallel=%v lazy=%v asks=%v", parallel, lazy, asks), func(t *testing.T) {
					run := func(j *fakeJournal, w *toolRuns, emit func(event.Payload) error) (*deterministicModel, finalState, error) {
						var handlers []hook.Handler
						if asks {
							handlers = modelAskingHandlers()
						}
						in, model := newInput("go", handlers...), &deterministicModel{}
						in.Journal, in.IdempotencyKey = j, idempotencyKey
						out, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: w.tools(t), Parallel: parallel, MaxFailures: 99}, in, emit)
						return model, finalState{out, in.Control.ChangesToStore()}, err
					}
					all, whole, err := run(&fakeJournal{}, &toolRuns{}, ignoreEvents)
					require.NoError(t, err)
					require.Len(t, whole.Messages, 9)

					for after := 0; ; after++ {
						j, w := &fakeJournal{durableOnSync: lazy}, &toolRuns{}
						first, _, err := run(j, w, (&killedConsumer{eventsLeft: after}).emit)
						if err == nil {
							require.Greater(t, after, 14, "the run was long enough")
							return
						}
						require.ErrorIs(t, err, errKilled)
						j.pending = nil
						replies := 0
						for _, e := range j.durable {
							if e.Tool == "" {
								replies++
							}
						}
						second, out, err := run(j, w, ignoreEvents)
						require.NoError(t, err)
						require.Empty(t, gocmp.Diff(whole.Messages, out.Messages, cmpopts.EquateEmpty()), "lost after event %d", after)
						require.Empty(t, gocmp.Diff(whole.state, out.state), "lost after event %d", after)
						require.Equal(t, all.callCount, second.callCount+replies, "what was kept is not asked again")
						require.LessOrEqual(t, first.callCount, all.callCount)

						keys := map[string]int{}
						for _, did := range w.recorded {
							keys[did]++
						}
						require.Len(t, keys, 4, "every call has one key in all attempts")
					}
				})
			}
		}
	}
}

// If one call of a round cannot start, no call of the round starts, so that each start event has an end event
// (CO-47).
// Req: CO-47
func TestLoop_StartsNoToolOfARoundThatFails(t *testing.T) {
	w := &toolRuns{}
	j := &fakeJournal{durable: []execution.Entry{{Number: 3, Phase: execution.Done, Tool: "idempotent", Digest: "another"}}}
	in := newInput("go")
	in.Journal = j
	var got eventRecorder
	_, err := runToEnd(t.Context(), loop.Loop{Model: scripted.New(toolCallsReply("read", "idempotent")), Tools: w.tools(t), Parallel: true}, in, got.emit)
	require.ErrorContains(t, err, "changed under a running step")
	require.Empty(t, w.recorded)
	for _, e := range got.events {
		require.NotEqual(t, event.ToolStarted{}.Kind(), e.Kind())
	}
}
