package samples

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/agenttest"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

// Document 002, the callbacks: state of the before callback is one event before the run, the first content ends it, an error
// skips it, and the after callback adds an event. It differs in this: content is a text, and callbacks are handlers of the
// config instead of lists of their own.
//
// Req: AD-3, AD-4, AD-5, AD-6, AD-12, AD-18
func TestADK_Callbacks(t *testing.T) {
	before := func(text string, failing error) hook.Handler {
		return hook.BeforeAgent(func(_ context.Context, cb *hook.Turn) (string, error) {
			if err := cb.Memory().Set("seen", true); err != nil {
				return "", err
			}
			return text, failing
		})
	}
	after := hook.AfterAgent(func(context.Context, *hook.Turn) (string, error) { return "Added.", nil })
	newAgent := func(handlers ...hook.Handler) *agent.Agent {
		a, err := agent.New(agent.Config{Name: "assistant", Model: scripted.New(scripted.Say("Run.")), Handlers: handlers})
		require.NoError(t, err)
		return a
	}

	turn := agenttest.Run(t, newAgent(before("", nil), after), "hello")
	require.Equal(t, []string{"user_input", "message", "llm_call", "assistant", "message", "turn_result"}, turn.Kinds())
	require.Equal(t, map[string]any{"seen": true}, turn.State)

	turn = agenttest.Run(t, newAgent(before("Skipped.", nil), before("never", nil), after), "hello")
	require.Equal(t, []string{"user_input", "message", "turn_result"}, turn.Kinds())
	require.Equal(t, "Skipped.", turn.Text)

	denied := failure.New(failure.PolicySecurity, "callback", "Not today.")
	turn = agenttest.NewSession(t, newAgent(before("", denied), after)).Try("hello")
	require.ErrorIs(t, turn.Err, denied)
	require.Empty(t, turn.State, "the delta of a chain that fails is dropped")
}

// Document 002, plugins and the runner: user message, before and after run, and each event go through the plugin first.
//
// Req: AD-25, AD-27
func TestADK_RunnerWithPlugin(t *testing.T) {
	var log []string
	note := func(what string) func(context.Context, *hook.Turn) (string, error) {
		return func(context.Context, *hook.Turn) (string, error) { log = append(log, what); return "", nil }
	}
	logging := hook.Plugin{Name: "logging", Handlers: []hook.Handler{
		hook.OnUserMessage(note("user message")), hook.BeforeRun(note("before run")), hook.BeforeAgent(note("before agent")),
		hook.OnEvent(func(_ context.Context, _ *hook.Turn, e event.Event) (event.Payload, error) {
			if e.Kind() == "llm_call" {
				log = append(log, "event")
			}
			return nil, nil
		}),
		hook.AfterRun(func(context.Context, *hook.Completion) error { log = append(log, "after run"); return nil }),
	}, Close: func() error { log = append(log, "close"); return nil }}
	a, err := agent.New(agent.Config{Name: "root", Model: scripted.New(scripted.Say("Hi.")), Plugins: []hook.Plugin{logging}})
	require.NoError(t, err)
	agenttest.Run(t, a, "hello")
	require.NoError(t, a.Close())
	require.Equal(t, []string{"user message", "before run", "before agent", "event", "after run", "close"}, log)
}

// Document 002, the workflow agents: sequential, loop until escalation, and parallel with a branch for each child.
//
// Req: AD-28, AD-30
func TestADK_WorkflowAgents(t *testing.T) {
	newChild := func(name, output string, model *scripted.Model, handlers ...hook.Handler) *agent.Agent {
		a, err := agent.New(agent.Config{Name: name, OutputKey: output, Instructions: "You are {role?}.", Model: model, Handlers: handlers})
		require.NoError(t, err)
		return a
	}
	writerModel := scripted.New(scripted.Say("Draft."))
	readerModel := scripted.New(scripted.Say("Good: "))
	reader, err := agent.New(agent.Config{Name: "reader", Instructions: "Judge {draft}", Model: readerModel})
	require.NoError(t, err)
	team, err := flow.Sequence(agent.Config{Name: "team"}, newChild("writer", "draft", writerModel), reader)
	require.NoError(t, err)
	agenttest.Run(t, team, "Write")
	require.Equal(t, "Judge Draft.", readerModel.Requests()[0].System, "state of the first child")

	rounds := 0
	critic := newChild("critic", "", scripted.New(scripted.Say("No."), scripted.Say("Yes.")), hook.AfterAgent(func(_ context.Context, turn *hook.Turn) (string, error) {
		if rounds++; rounds == 2 {
			turn.Escalate()
		}
		return "", nil
	}))
	loop, err := flow.Repeat(agent.Config{Name: "loop"}, 5, critic)
	require.NoError(t, err)
	agenttest.Run(t, loop, "Judge")
	require.Equal(t, 2, rounds)

	both, err := flow.Parallel(agent.Config{Name: "both"}, newChild("left", "", scripted.New(scripted.Say("L"))), newChild("right", "", scripted.New(scripted.Say("R"))))
	require.NoError(t, err)
	branches := map[string]bool{}
	for _, e := range agenttest.Run(t, both, "Go").Events {
		branches[e.Branch] = true
	}
	require.True(t, branches["both.left"] && branches["both.right"], "%v", branches)
}
