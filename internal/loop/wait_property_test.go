package loop_test

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Calls wait, answers arrive and workers die at random. A call that may run only once never runs twice. In the end
// the messages and their order are the same as if every answer came at once and no worker was lost.
// Req: LP-16, LP-32, AD-32
func TestLoop_ResultDoesNotDependOnTheOrderOfAnswers(t *testing.T) {
	for range 3 {
		rapid.Check(t, func(rt *rapid.T) {
			p := &waitingTurn{
				t:                rt,
				rounds:           rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 4), 1, 5), 1, 3).Draw(rt, "rounds"),
				verdicts:         rapid.SliceOfN(rapid.IntRange(0, 4), 15, 15).Draw(rt, "verdicts"),
				parallel:         rapid.Bool().Draw(rt, "parallel"),
				handlersAskModel: rapid.Bool().Draw(rt, "asks"),
			}
			p.reset(t)
			for p.runAttempt(nil, -1) != nil {
				p.setAnswers(func(string) bool { return true })
			}
			whole := p.messages

			p.reset(t)
			p.journal.durableOnSync = rapid.Bool().Draw(rt, "lazy")
			for turns := 0; ; turns++ {
				require.Less(rt, turns, 100)
				after := -1
				if turns < 30 && rapid.IntRange(0, 2).Draw(rt, "lost") > 0 {
					after = rapid.IntRange(0, 30).Draw(rt, "after")
				}
				var keep func(int) int
				if rapid.Bool().Draw(rt, "half") { // some entries may be durable without a sync
					keep = func(n int) int { return rapid.IntRange(0, n).Draw(rt, "kept") }
				}
				if p.runAttempt(keep, after) == nil && !p.lost {
					break
				}
				if !p.lost {
					p.setAnswers(func(string) bool { return turns > 30 || rapid.Bool().Draw(rt, "answered") })
				}
			}
			for did, times := range p.runCounts {
				require.Equal(rt, 1, times, did)
			}
			for i, m := range p.messages {
				if i < len(whole) && strings.Contains(m.Text, "it is not known whether once did") {
					p.messages[i].Text = whole[i].Text // the tool was running when its worker died
				}
			}
			require.Empty(rt, gocmp.Diff(whole, p.messages, cmpopts.EquateEmpty()))
			require.NoError(rt, conversation.CheckRounds(p.messages))
		})
	}
}

// waitingTurn is a turn of several rounds in which many calls wait. It is also the model of the turn.
type waitingTurn struct {
	t                require.TestingT
	rounds           [][]int // tool numbers of each round
	verdicts         []int   // verdict on each call, indexed by the number in its argument
	parallel         bool
	handlersAskModel bool // whether handlers also ask the model

	tools     *tool.Set
	allowed   map[string]bool // approved calls, by id
	journal   *fakeJournal
	answers   []execution.Answer // answers of the turn, the same in all its attempts
	pending   []execution.Pending
	lost      bool
	mu        sync.Mutex
	runCounts map[string]int
	messages  []conversation.Message
}

func (wt *waitingTurn) reset(t *testing.T) {
	var all []tool.Tool
	wt.journal, wt.answers, wt.pending, wt.runCounts, wt.allowed = &fakeJournal{}, nil, nil, map[string]int{}, map[string]bool{}
	for i, effect := range []execution.Effect{execution.Read, execution.Idempotent, execution.AtMostOnce} {
		name := [...]string{"read", "write", "once"}[i]
		one, err := tool.Func(name, "A tool of the test.", func(_ context.Context, in wordArgs) (string, error) {
			wt.mu.Lock()
			defer wt.mu.Unlock()
			if name == "once" {
				wt.runCounts[in.Word]++
			}
			return "did " + in.Word, nil
		})
		require.NoError(t, err)
		all = append(all, tool.WithEffect(effect, one))
	}
	client, err := tool.Client("client", "A tool of the test.", []byte(`{"type": "object"}`))
	require.NoError(t, err)
	wt.tools, err = tool.NewSet(append(all, client)...)
	require.NoError(t, err)
}

// runAttempt runs one attempt and returns the calls that wait at its end. The attempt is lost after the given
// number of events (negative for never). keep chooses how many entries are durable without a sync (nil for none).
func (wt *waitingTurn) runAttempt(keep func(int) int, after int) []execution.Pending {
	handlers := []hook.Handler{hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
		if c.Name == "once" || c.Name == "client" && strings.Contains(c.Arguments, "0") { // also some calls of client tools
			c.Wait("It is done once.", approvalDeadline)
		}
		return nil
	})}
	if wt.handlersAskModel {
		handlers = append(handlers, modelAskingHandlers()...)
		handlers = append(handlers, hook.AfterEachTool(func(ctx context.Context, c *hook.Call) error {
			said, err := c.Ask(ctx, llm.Request{Messages: []conversation.Message{conversation.User("aside about " + c.ID)}})
			c.Text += said.Text
			return err
		}))
	}
	in := newInput("go", handlers...)
	in.Journal, in.Answers = wt.journal, wt.answers
	l := loop.Loop{Model: wt, Tools: wt.tools, Parallel: wt.parallel, MaxFailures: 99}
	out, err := runToEnd(context.Background(), l, in, (&killedConsumer{eventsLeft: cmp.Or(after+1, 1<<20) - 1}).emit)
	if keep != nil {
		wt.journal.durable = append(wt.journal.durable, wt.journal.pending[:keep(len(wt.journal.pending))]...)
	}
	wt.journal.pending = nil
	if wt.lost = err != nil; wt.lost {
		require.ErrorIs(wt.t, err, errKilled)
		return nil
	}
	wt.messages, wt.pending = out.Messages, out.Pending
	for _, w := range out.Pending {
		require.False(wt.t, w.Needs == execution.NeedApproval && wt.allowed[w.ID], "%s was allowed", w.ID)
	}
	if len(out.Pending) == 0 {
		require.Equal(wt.t, event.Natural, out.Reason)
	}
	return out.Pending
}

// setAnswers prepares the turn that continues, with answers to some of the waiting calls.
func (wt *waitingTurn) setAnswers(whether func(id string) bool) {
	wt.answers = nil
	for _, w := range wt.pending {
		if !whether(w.ID) {
			continue
		}
		var n int
		_, err := fmt.Sscanf(w.Arguments, `{"word": "%d"}`, &n)
		require.NoError(wt.t, err)
		a := execution.Answer{ID: w.ID, Text: fmt.Sprint("because ", n), Verdict: execution.Approve}
		switch {
		case w.Needs == execution.NeedResult:
			a.Verdict = [...]execution.Verdict{execution.Succeed, execution.Fail}[wt.verdicts[n]%2]
		case wt.verdicts[n] == 0:
			a.Verdict = execution.Deny
		case wt.verdicts[n] == 1:
			a.Late = true
		}
		wt.allowed[w.ID] = wt.allowed[w.ID] || a.Verdict == execution.Approve && !a.Late
		wt.answers = append(wt.answers, a)
	}
}

func (*waitingTurn) Name() string { return "patient/model" }

// Generate implements llm.Model. It returns the next round, which depends on the messages of the request.
func (wt *waitingTurn) Generate(_ context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		if last := req.Messages[len(req.Messages)-1].Text; strings.HasPrefix(last, "aside") {
			yield(llm.Delta{Text: "yes to " + last}, nil)
			return
		}
		require.NoError(wt.t, conversation.CheckRounds(req.Messages))
		round, n := 0, 0
		for _, m := range req.Messages {
			if len(m.ToolCalls) > 0 {
				round, n = round+1, n+len(m.ToolCalls)
			}
		}
		if round == len(wt.rounds) {
			yield(llm.Delta{Text: "Done."}, nil)
			return
		}
		var calls []conversation.ToolCall
		for i, which := range wt.rounds[round] {
			calls = append(calls, toolCall("", [...]string{"read", "write", "once", "client", "nothing"}[which], fmt.Sprint(n+i)))
		}
		yield(llm.Delta{ToolCalls: calls}, nil)
	}
}
