package hook_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/hookerror"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// recordingHandler returns a handler that appends its name to log and answers with text.
func recordingHandler(log *[]string, name, text string) hook.Handler {
	return hook.BeforeAgent(func(context.Context, *hook.Turn) (string, error) {
		*log = append(*log, name)
		return text, nil
	})
}

func newControl(t *testing.T, plugins []hook.Plugin, own ...hook.Handler) *hook.Control {
	t.Helper()
	set, err := hook.NewSet(plugins, own)
	require.NoError(t, err)
	return hook.New(hook.Start{Handlers: set, Info: hook.Info{Agent: "test", TurnID: "turn-1"}})
}

// Req: CO-4
func TestSet_RunsPluginsFirstAndEachListInItsOrder(t *testing.T) {
	var log []string
	c := newControl(t, []hook.Plugin{
		{Name: "one", Handlers: []hook.Handler{recordingHandler(&log, "one 1", ""), recordingHandler(&log, "one 2", "")}},
		{Name: "two", Handlers: []hook.Handler{recordingHandler(&log, "two", "")}},
	}, recordingHandler(&log, "own 1", ""), recordingHandler(&log, "own 2", ""))
	text, err := c.Handlers.BeforeAgent(t.Context())
	require.NoError(t, err)
	require.Empty(t, text)
	require.Equal(t, []string{"one 1", "one 2", "two", "own 1", "own 2"}, log)
}

// Req: AD-27
func TestSet_FirstAnswerWins(t *testing.T) {
	var log []string
	c := newControl(t, []hook.Plugin{
		{Name: "one", Handlers: []hook.Handler{recordingHandler(&log, "one", "")}},
		{Name: "two", Handlers: []hook.Handler{recordingHandler(&log, "two", "from two")}},
	}, recordingHandler(&log, "own", "from own"))
	text, err := c.Handlers.BeforeAgent(t.Context())
	require.NoError(t, err)
	require.Equal(t, "from two", text)
	require.Equal(t, []string{"one", "two"}, log)
	require.True(t, c.Progress.Ended())

	answered := 0
	model := newControl(t, nil,
		hook.BeforeLLM(func(_ context.Context, r *hook.LLMRequest) error { answered++; r.Respond("first"); return nil }),
		hook.BeforeLLM(func(_ context.Context, r *hook.LLMRequest) error { answered++; r.Respond("second"); return nil }),
		hook.OnLLMError(func(_ context.Context, f *hook.LLMFailure) error { answered++; f.Respond("first"); return nil }),
		hook.OnLLMError(func(_ context.Context, f *hook.LLMFailure) error { answered++; f.Respond("second"); return nil }),
		hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error { answered++; c.Answer("first"); return nil }),
		hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error { answered++; c.Reject("second"); return nil }),
	)
	req, failed, call := &hook.LLMRequest{Turn: model.Turn()}, &hook.LLMFailure{Turn: model.Turn()}, &hook.Call{Turn: model.Turn()}
	require.NoError(t, model.Handlers.BeforeLLM(t.Context(), req))
	require.NoError(t, model.Handlers.OnLLMError(t.Context(), failed))
	require.NoError(t, model.Handlers.BeforeEachTool(t.Context(), call))
	require.Equal(t, []string{"first", "first", "first"}, []string{req.Reply.Text, failed.Reply.Text, call.Text})
	require.Equal(t, 3, answered)
}

// Req: CO-5, AD-27
func TestNewSet_RejectsInvalidHandlers(t *testing.T) {
	good := hook.AfterTools(func(context.Context, *hook.Round) error { return nil })
	for name, tc := range map[string]struct {
		plugins []hook.Plugin
		own     []hook.Handler
		want    string
	}{
		"no event":           {nil, []hook.Handler{good, {}}, "handlers: handler 2 belongs to no event; make it with a function of package hook"},
		"no function":        {nil, []hook.Handler{hook.BeforeLLM(nil)}, "handlers: handler 1, of before_llm, has no function"},
		"no event, plugin":   {[]hook.Plugin{{Name: "one", Handlers: []hook.Handler{{}}}}, nil, "plugin one: handler 1 belongs to no event"},
		"plugin, no name":    {[]hook.Plugin{{Name: "one"}, {Name: " "}}, nil, "plugins: number 2 has no name"},
		"plugin, name twice": {[]hook.Plugin{{Name: "one"}, {Name: "one"}}, nil, `plugins: two are named "one"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := hook.NewSet(tc.plugins, tc.own)
			require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// Req: CO-5
func TestNewSet_RejectsHandlersWithoutAFunction(t *testing.T) {
	for _, h := range []hook.Handler{
		hook.BeforeAgent(nil), hook.AfterAgent(nil), hook.AfterUserInput(nil), hook.BeforeIteration(nil), hook.AfterIteration(nil),
		hook.BeforeLLM(nil), hook.AfterLLM(nil), hook.OnLLMError(nil), hook.BeforeTools(nil), hook.AfterTools(nil),
		hook.BeforeEachTool(nil), hook.AfterEachTool(nil), hook.OnError(nil), hook.OnStopSignal(nil), hook.OnComplete(nil), hook.OnAgentReady(nil),
	} {
		_, err := hook.NewSet(nil, []hook.Handler{h})
		require.ErrorContains(t, err, "has no function")
	}
}

// Req: C-10, CO-41, CO-75
func TestSet_NamesTheHandlerThatFailed(t *testing.T) {
	secret := errors.New("password 1234")
	fail := func(err error) []hook.Handler {
		return []hook.Handler{hook.AfterUserInput(func(context.Context, *hook.Turn) error { return err })}
	}
	for name, tc := range map[string]struct {
		err  error
		mode failure.Mode
		want string
	}{
		"of a mode": {
			failure.New(failure.PolicyBudget, "test", "no money"), failure.PolicyBudget,
			"no money",
		},
		"of none":      {secret, failure.AgentLogic, "the handler after_user_input of plugin purse failed and gave no reason; the log of the agent has the error"},
		"of a context": {context.Canceled, failure.UserCancelled, "the handler after_user_input of plugin purse failed: context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			err := newControl(t, []hook.Plugin{{Name: "purse", Handlers: fail(tc.err)}}).Handlers.AfterUserInput(t.Context())
			require.ErrorIs(t, err, tc.err)
			require.Equal(t, tc.mode, failure.ModeOf(err))
			require.Equal(t, tc.want, failure.PlainMessage(err), "what a caller reads")
			e, ok := errors.AsType[*failure.Error](err)
			require.True(t, ok)
			require.Equal(t, "after_user_input of plugin purse", e.Facts["handler"])
			require.True(t, hookerror.Is(err))
			require.False(t, hookerror.Is(tc.err))
		})
	}
}

func TestTurn_HoldsAddedMessagesUntilTheRoundEnds(t *testing.T) {
	c := hook.New(hook.Start{Messages: []conversation.Message{conversation.User("hi")}})
	turn := c.Turn()
	asked := []conversation.ToolCall{{ID: "1", Name: "echo"}}
	c.Conversation.Append(conversation.Message{Role: conversation.RoleAssistant, ToolCalls: asked})
	c.Conversation.OpenRound(asked)
	turn.Add(conversation.User("in between"))
	require.Len(t, turn.Messages(), 2)
	require.Equal(t, asked, turn.Pending())
	err := turn.Replace([]conversation.Message{conversation.User("summary")})
	require.True(t, failure.Is(err, failure.AgentLogic), "%v", err)
	c.Conversation.Append(conversation.Message{Role: conversation.RoleTool, ToolCallID: "1", Text: "heard"})
	c.Conversation.CloseRound()
	require.Empty(t, turn.Pending())
	require.Equal(t, "in between", turn.Messages()[3].Text)

	err = turn.Replace(turn.Messages()[:2])
	require.ErrorContains(t, err, `call "1" of tool echo has no result`)
	require.Len(t, turn.Messages(), 4)
	require.NoError(t, turn.Replace([]conversation.Message{conversation.User("summary")}))
	require.Len(t, turn.Messages(), 1)

	// Appending to the returned slice does not change the turn.
	_ = append(turn.Messages(), conversation.User("mine"))
	turn.Add(conversation.User("yours"))
	require.Equal(t, "yours", turn.Messages()[1].Text)
}

func TestTurn_AskFailsWithoutAModel(t *testing.T) {
	_, err := hook.New(hook.Start{}).Turn().Ask(t.Context(), llmRequest)
	require.True(t, failure.Is(err, failure.AgentState), "%v", err)
}
