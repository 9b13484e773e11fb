package agent_test

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/agenttest"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// handlersForEveryEvent returns one handler for each event of a turn. It appends the event's name to the log and
// then calls act.
func handlersForEveryEvent(note func(string), act func(turn *hook.Turn) error) []hook.Handler {
	on := func(name string, turn *hook.Turn) error {
		note(name)
		return act(turn)
	}
	turn := func(name string) func(context.Context, *hook.Turn) error {
		return func(_ context.Context, turn *hook.Turn) error { return on(name, turn) }
	}
	reply := func(name string) func(context.Context, *hook.Turn) (string, error) {
		return func(_ context.Context, turn *hook.Turn) (string, error) { return "", on(name, turn) }
	}
	round := func(name string) func(context.Context, *hook.Round) error {
		return func(_ context.Context, r *hook.Round) error { return on(name, r.Turn) }
	}
	call := func(name string) func(context.Context, *hook.Call) error {
		return func(_ context.Context, c *hook.Call) error { return on(name, c.Turn) }
	}
	return []hook.Handler{
		hook.BeforeAgent(reply("before_agent")),
		hook.AfterUserInput(turn("after_user_input")),
		hook.BeforeIteration(turn("before_iteration")),
		hook.BeforeLLM(func(_ context.Context, r *hook.LLMRequest) error { return on("before_llm", r.Turn) }),
		hook.OnLLMError(func(_ context.Context, f *hook.LLMFailure) error {
			f.Respond("recovered")
			return on("on_llm_error", f.Turn)
		}),
		hook.AfterLLM(func(_ context.Context, r *hook.LLMReply) error { return on("after_llm", r.Turn) }),
		hook.BeforeTools(round("before_tools")),
		hook.BeforeEachTool(call("before_each_tool")),
		hook.OnError(call("on_error")),
		hook.AfterEachTool(call("after_each_tool")),
		hook.AfterTools(round("after_tools")),
		hook.AfterIteration(turn("after_iteration")),
		hook.OnStopSignal(turn("on_stop_signal")),
		hook.AfterAgent(reply("after_agent")),
		hook.OnComplete(func(_ context.Context, c *hook.Completion) error { return on("on_complete", c.Turn) }),
	}
}

// agentWithEveryEvent returns an agent whose turn goes through every event except OnStopSignal.
func agentWithEveryEvent(t *testing.T, note func(string), act func(turn *hook.Turn) error) agent.Config {
	t.Helper()
	type in struct {
		Query string `json:"query"`
	}
	lookup, err := tool.Func("lookup", "Looks something up.", func(_ context.Context, in in) (string, error) {
		note("tool")
		if in.Query == "error" {
			return "", errors.New("down")
		}
		return in.Query, nil
	})
	require.NoError(t, err)
	return agent.Config{
		Model:    scripted.New(lookupReply("a", "error"), scripted.Fail(failure.New(failure.ResourceAPI, "test", "down"))),
		Tools:    []tool.Tool{lookup},
		Handlers: handlersForEveryEvent(note, act),
	}
}

var everyEvent = strings.Fields(`before_agent after_user_input
	before_iteration before_llm after_llm before_tools
	before_each_tool tool after_each_tool before_each_tool tool on_error after_each_tool after_tools after_iteration
	before_iteration before_llm on_llm_error after_llm after_iteration
	after_agent on_complete`)

// countResults counts the TurnResult events of a turn.
func countResults(turn agenttest.Turn) int {
	n := 0
	for _, e := range turn.Events {
		if _, ok := e.Payload.(event.TurnResult); ok {
			n++
		}
	}
	return n
}

// actAt returns a function that calls act at the nth event of the turn only.
func actAt(n int, log *[]string, act func(*hook.Turn) error) func(*hook.Turn) error {
	return func(turn *hook.Turn) error {
		if len(*log) != n+1 {
			return nil
		}
		return act(turn)
	}
}

// Req: AD-8, AD-11
func TestTurn_EndEndsItAtEveryEvent(t *testing.T) {
	for n, name := range everyEvent {
		if name == "tool" {
			continue
		}
		var log []string
		a := agentWithEveryEvent(t, func(name string) { log = append(log, name) }, actAt(n, &log, func(turn *hook.Turn) error {
			turn.End()
			return nil
		}))
		turn := agenttest.Run(t, build(t, a), "hello")
		require.Equal(t, everyEvent[:n+1], log, "%d: %s", n, name)
		require.Equal(t, 1, countResults(turn))
		require.Empty(t, turn.Result.ErrorType)
		want := event.Stopped
		if n > len(everyEvent)-4 { // the model has answered
			want = event.Natural
		}
		require.Equal(t, want, turn.Result.Reason, "%d: %s", n, name)
	}
}

// Req: CO-41, CO-49
func TestTurn_ErrorEndsItAtEveryEvent(t *testing.T) {
	for n, name := range everyEvent {
		if name == "tool" {
			continue
		}
		var log []string
		a := agentWithEveryEvent(t, func(name string) { log = append(log, name) }, actAt(n, &log, func(*hook.Turn) error { return errDisk }))
		turn := agenttest.NewSession(t, build(t, a)).Try("hello")
		require.Equal(t, 1, countResults(turn))
		require.Equal(t, "turn_result", turn.Events[len(turn.Events)-1].Kind())
		if name == "before_each_tool" {
			require.NoError(t, turn.Err)
			require.Equal(t, "recovered", turn.Text)
			continue
		}
		require.ErrorIs(t, turn.Err, errDisk)
		require.Contains(t, turn.Err.Error(), "hook."+name)
		require.Equal(t, everyEvent[:n+1], log, "%d: %s", n, name)
		require.Equal(t, event.Failed, turn.Result.Reason)
		require.Equal(t, "system_disk", turn.Result.ErrorType)
		require.Empty(t, turn.Result.Messages)
		require.Empty(t, turn.Result.Result.Text)
	}
}

// Req: AD-10
func TestRun_EndsWhenTheReaderStops(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, parallel := range []bool{false, true} {
		all := readEvents(t, parallel, 0)
		require.Greater(t, all, 30)
		for stop := 1; stop <= all; stop++ {
			require.Equal(t, stop, readEvents(t, parallel, stop))
		}
	}
}

// readEvents reads events until it has stop of them (0 reads all). It checks that nothing runs afterwards, and
// returns how many events it read.
func readEvents(t *testing.T, parallel bool, stop int) (events int) {
	t.Helper()
	var mu sync.Mutex
	ran := 0
	note := func(string) {
		mu.Lock()
		defer mu.Unlock()
		ran++
	}
	c := agentWithEveryEvent(t, note, func(turn *hook.Turn) error {
		turn.Warn("SEEN", "a handler ran")
		return nil
	})
	c.Parallel = parallel
	before := 0
	for _, err := range build(t, c).Run(t.Context(), agent.Invocation{Step: questionStep("hello")}) {
		require.NoError(t, err)
		events++
		before = ran
		if events == stop {
			break
		}
	}
	require.Equal(t, before, ran, "nothing runs after event %d", stop)
	return events
}

// Req: C-12
func TestOnComplete_RunsOnlyForAnAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		script []scripted.Reply
		act    func(*hook.Turn) error
		want   bool
	}{
		"answer":  {[]scripted.Reply{scripted.Say("hi")}, nil, true},
		"limit":   {[]scripted.Reply{lookupReply("a"), lookupReply("b")}, nil, true},
		"failed":  {[]scripted.Reply{lookupReply("error", "error", "error")}, nil, false},
		"stopped": {[]scripted.Reply{scripted.Say("hi")}, func(turn *hook.Turn) error { turn.Stop("enough"); return nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var log []string
			act := func(turn *hook.Turn) error {
				if tc.act == nil {
					return nil
				}
				return tc.act(turn)
			}
			a := build(t, agent.Config{
				Model: scripted.New(tc.script...), Tools: []tool.Tool{lookup(t)}, MaxIterations: 2,
				Handlers: handlersForEveryEvent(func(name string) { log = append(log, name) }, act),
			})
			turn := agenttest.NewSession(t, a).Try("hello")
			require.Equal(t, 1, countResults(turn))
			for _, name := range []string{"after_agent", "on_complete"} {
				if tc.want {
					require.Contains(t, log, name)
				} else {
					require.NotContains(t, log, name)
				}
			}
			if tc.act != nil {
				require.Equal(t, "on_stop_signal", log[len(log)-1])
			}
		})
	}
}

// readAllYAML returns the joined text of all YAML files in a folder.
func readAllYAML(t *testing.T, folder string) string {
	t.Helper()
	var all strings.Builder
	require.NoError(t, filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	}))
	return all.String()
}

// Req: CO-53, CO-54
func TestOnComplete_RunsLastWithTheWholeTurn(t *testing.T) {
	folder := t.TempDir()
	var order []string
	var done hook.Completion
	var transcript string
	a := build(t, agent.Config{
		Model: scripted.New(lookupReply("a"), scripted.Reply{Deltas: []string{"Found it."}, Usage: execution.Usage{InputTokens: 5, CostMicros: 7}}),
		Tools: []tool.Tool{lookup(t)}, SessionLog: &agent.SessionLog{Folder: folder},
		Handlers: []hook.Handler{
			hook.AfterAgent(func(context.Context, *hook.Turn) (string, error) {
				order = append(order, "after_agent")
				return "One more thing.", nil
			}),
			hook.OnComplete(func(_ context.Context, c *hook.Completion) (err error) {
				order = append(order, "on_complete")
				done = *c
				transcript, err = c.Transcript()
				require.Contains(t, readAllYAML(t, folder), "Found it.", "the log has the turn before")
				return errors.Join(err, c.Memory().Set("done", true))
			}),
		},
	})
	turn := agenttest.Run(t, a, "Look it up.")
	require.Equal(t, []string{"after_agent", "on_complete"}, order)
	require.Equal(t, "Look it up.", done.Info().Prompt)
	require.Equal(t, scripted.Name, done.Info().Model)
	require.Positive(t, done.Duration)
	require.EqualValues(t, 5, done.Usage().InputTokens)
	require.EqualValues(t, 7, done.Usage().CostMicros)
	require.Equal(t, []string{"lookup"}, done.ToolsCalled())
	require.Equal(t, "Found it.", done.Result)
	require.Equal(t, event.Natural, done.Reason)
	for _, text := range []string{"Look it up.", "found a", "Found it.", "One more thing."} {
		require.Contains(t, transcript, text)
	}
	require.Equal(t, map[string]any{"done": true}, turn.State)
	require.Equal(t, stateChange("done", "true"), messages(turn)[1].State, "emitted before the result")
}

// Req: CO-28
func TestTurn_AppendsTheAnswerToTheMessages(t *testing.T) {
	for name, tc := range map[string]struct {
		config agent.Config
		want   string
	}{
		"model": {agent.Config{Model: scripted.New(scripted.Say("hi"))}, "hi"},
		"limit": {agent.Config{Model: scripted.New(lookupReply("a")), MaxIterations: 1}, "Task incomplete: Maximum iterations (1) reached."},
		"degraded": {
			agent.Config{Model: scripted.New(), OnFailure: agent.Degrade},
			"I could not finish this. Research failed: the script ended before request 1.",
		},
		"function": {agent.Config{Run: func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] {
			return func(yield func(event.Event, error) bool) {
				yield(event.Event{Payload: event.Message{Text: "made"}}, nil)
			}
		}}, "made"},
	} {
		t.Run(name, func(t *testing.T) {
			var last conversation.Message
			tc.config.Handlers = []hook.Handler{hook.OnComplete(func(_ context.Context, c *hook.Completion) error {
				last = c.Messages()[len(c.Messages())-1]
				return nil
			})}
			tc.config.Tools = []tool.Tool{lookup(t)}
			turn := agenttest.Run(t, build(t, tc.config), "hello")
			require.Equal(t, tc.want, turn.Text)
			require.Equal(t, conversation.Assistant("research", tc.want), last)
			var appended []conversation.Message
			for _, e := range turn.Events {
				if p, ok := e.Payload.(event.MessageAppended); ok {
					appended = append(appended, p.Message)
				}
			}
			require.Equal(t, last, appended[len(appended)-1])
		})
	}
}

// A step that chooses a route fails with policy_security if a handler stops the turn. The same holds for a handler
// answer that names no route. No route is chosen.
func TestRun_RejectionByAHandlerIsNotARoute(t *testing.T) {
	for name, handler := range map[string]hook.Handler{
		"answer": hook.BeforeAgent(func(context.Context, *hook.Turn) (string, error) { return "Blocked: ask the writer yourself.", nil }),
		"stop": hook.BeforeLLM(func(_ context.Context, r *hook.LLMRequest) error {
			r.Stop("you may not use the writer")
			return nil
		}),
	} {
		t.Run(name, func(t *testing.T) {
			a := build(t, agent.Config{Model: scripted.New(scripted.Say("writer")), Handlers: []hook.Handler{handler}})
			step := questionStep("write it")
			step.Routes = []string{"writer", "reader"}
			result, _, err := execute(t.Context(), a, step, discardEvents)
			require.True(t, failure.Is(err, failure.PolicySecurity), "%v", err)
			require.Empty(t, result.NextAgent)
		})
	}
}

// Close also closes the plugins of an agent that was never started. A run that is ranged over twice starts from
// the beginning.
func TestAgent_ClosesPluginsOnceAndMayRunAgain(t *testing.T) {
	closed := 0
	a := build(t, agent.Config{
		Model:   scripted.New(scripted.Say("one"), scripted.Say("two")),
		Plugins: []hook.Plugin{{Name: "p", Close: func() error { closed++; return nil }}},
	})
	run := a.Run(t.Context(), agent.Invocation{Step: questionStep("hi")})
	for range 2 {
		first := true
		for e, err := range run {
			require.NoError(t, err)
			if first {
				require.Equal(t, 1, e.Sequence)
			}
			first = false
		}
	}
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	require.Equal(t, 1, closed)
}
