package agent_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/agenttest"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Req: CO-49
func TestRun_HasExactlyOneResultInEveryEnding(t *testing.T) {
	cancelled := func(inv *agent.Invocation) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		inv.Stop = ctx
	}
	usage := execution.Usage{InputTokens: 5, OutputTokens: 2}
	down := scripted.Reply{Usage: usage, Err: failure.New(failure.ResourceAPI, "test", "down")}
	never := scripted.Reply{Wait: make(chan struct{})}
	own := func(fn func(context.Context) error) hook.Handler {
		return hook.AfterUserInput(func(ctx context.Context, _ *hook.Turn) error { return fn(ctx) })
	}
	for name, tc := range map[string]struct {
		config agent.Config
		script []scripted.Reply
		change func(*agent.Invocation)
		reason event.Reason
		mode   failure.Mode
		tokens int64 // (-1 means unknown)
	}{
		"answer":           {script: []scripted.Reply{{Deltas: []string{"hi"}, Usage: usage}}, reason: event.Natural, tokens: 5},
		"answer, no usage": {script: []scripted.Reply{scripted.Say("hi")}, reason: event.Natural, tokens: -1},
		"limit": {
			config: agent.Config{MaxIterations: 1}, script: []scripted.Reply{{ToolCalls: lookupReply("a").ToolCalls, Usage: usage}},
			reason: event.MaxIterations, tokens: 5,
		},
		"question":          {config: agent.Config{AsksUser: true}, script: []scripted.Reply{scripted.Say("Which?")}, reason: event.InputRequired, tokens: -1},
		"stopped before":    {change: cancelled, reason: event.Stopped, tokens: -1},
		"stopped, question": {config: agent.Config{AsksUser: true}, change: cancelled, reason: event.Stopped, tokens: -1},
		"model fails":       {script: []scripted.Reply{down}, reason: event.Failed, mode: failure.ResourceAPI, tokens: 5},
		"model degrades":    {config: agent.Config{OnFailure: agent.Degrade}, script: []scripted.Reply{down}, reason: event.Natural, tokens: 5},
		"script ends":       {reason: event.Failed, mode: failure.ResourceAPI, tokens: -1},
		"empty answer":      {script: []scripted.Reply{{Usage: usage}}, reason: event.Failed, mode: failure.AgentLogic, tokens: 5},
		"tools fail":        {script: []scripted.Reply{lookupReply("error", "error", "error")}, reason: event.Failed, mode: failure.ResourceTool, tokens: -1},
		"no instructions":   {config: agent.Config{Instructions: "{missing}"}, reason: event.Failed, mode: failure.AgentValidation, tokens: -1},
		"timeout": {
			config: agent.Config{Timeout: time.Millisecond}, script: []scripted.Reply{never}, reason: event.Interrupted,
			mode: failure.AgentTimeout, tokens: -1,
		},
		"timeout of a handler": {config: agent.Config{Timeout: time.Millisecond, Handlers: []hook.Handler{own(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})}}, reason: event.Interrupted, mode: failure.AgentTimeout, tokens: -1},
		"handler panics": {
			config: agent.Config{Handlers: []hook.Handler{own(func(context.Context) error { panic("oh") })}}, reason: event.Failed,
			mode: failure.AgentLogic, tokens: -1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.config.Model, tc.config.Tools = scripted.New(tc.script...), []tool.Tool{lookup(t)}
			s := agenttest.NewSession(t, build(t, tc.config))
			var changes []func(*agent.Invocation)
			if tc.change != nil {
				changes = append(changes, tc.change)
			}
			turn := s.Try("hello", changes...)
			require.Equal(t, 1, countResults(turn))
			require.Equal(t, "turn_result", turn.Events[len(turn.Events)-1].Kind(), "it is the last")
			require.Equal(t, tc.reason, turn.Result.Reason)
			require.Equal(t, string(tc.mode), turn.Result.ErrorType)
			require.Equal(t, tc.mode != "", turn.Err != nil, "%v", turn.Err)
			require.Equal(t, tc.reason == event.InputRequired, turn.Result.Result.InputRequired)
			require.Equal(t, 1, turn.Result.Turn)
			if tc.tokens < 0 {
				require.Nil(t, turn.Result.Usage, "unknown is not 0")
				return
			}
			require.Equal(t, tc.tokens, turn.Result.Usage.InputTokens)
		})
	}
}

// panickingModel is a model that panics.
type panickingModel struct{}

func (panickingModel) Name() string { return "test/panicking" }

func (panickingModel) Generate(context.Context, llm.Request) iter.Seq2[llm.Delta, error] {
	return func(func(llm.Delta, error) bool) { panic("oh") }
}

// Req: CO-49
func TestRun_ContainsOnlyPanicsOfTheAgentsOwnCode(t *testing.T) {
	broken := func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] { panic("oh") }
	for _, c := range []agent.Config{{Model: panickingModel{}}, {Run: broken}, {Model: panickingModel{}, OnFailure: agent.Degrade}} {
		turn := agenttest.NewSession(t, build(t, c)).Try("hello")
		require.True(t, failure.Is(turn.Err, failure.AgentLogic), "%v", turn.Err)
		require.ErrorContains(t, turn.Err, "panic: oh")
		require.NotContains(t, failure.PlainMessage(turn.Err), "oh")
		require.Equal(t, 1, countResults(turn))
	}
	require.PanicsWithValue(t, "mine", func() {
		for _, err := range build(t, agent.Config{Model: scripted.New(scripted.Say("hi"))}).Run(t.Context(), agent.Invocation{Step: questionStep("hi")}) {
			require.NoError(t, err)
			panic("mine")
		}
	})
	warns := hook.BeforeIteration(func(_ context.Context, t *hook.Turn) error { t.Warn("LOOK", "here"); return nil })
	require.PanicsWithValue(t, "mine", func() {
		a := build(t, agent.Config{Model: scripted.New(scripted.Say("hi")), Handlers: []hook.Handler{warns}})
		for e, err := range a.Run(t.Context(), agent.Invocation{Step: questionStep("hi")}) {
			require.NoError(t, err)
			if _, told := e.Payload.(event.Warning); told {
				panic("mine") // in the reader, while a handler runs
			}
		}
	})
}

func TestExecute_EmitIsOptional(t *testing.T) {
	done, err := build(t, agent.Config{Model: scripted.New(scripted.Say("hi"))}).Execute(t.Context(), agent.Invocation{Step: questionStep("hi")}, nil)
	require.NoError(t, err)
	require.Equal(t, "hi", done.Result.Text)
}
