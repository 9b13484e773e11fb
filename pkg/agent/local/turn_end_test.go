package local_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/secret"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// stateSetter returns a handler that sets keys in all scopes in the first turn. In later turns it records which of
// them it finds.
func stateSetter(found map[string]string) hook.Handler {
	return hook.BeforeAgent(func(ctx context.Context, turn *hook.Turn) (string, error) {
		m := turn.Memory()
		if turn.Info().Turn == 1 {
			return "", errors.Join(m.Set("plain", 1), m.Set("plugin.key", []string{"a"}), m.Set("user:name", "Alice"), m.Set("temp:x", "secret"))
		}
		for _, key := range []string{"plain", "plugin.key", "user:name", "temp:x"} {
			value, err := m.Get(ctx, key)
			if err != nil && !errors.Is(err, hook.ErrNoKey) {
				return "", err
			}
			found[key] = string(value)
		}
		return "", nil
	})
}

// Keys of the session, the user and the app are still set in the next turn. Keys under temp: are not.
// Req: CO-20, AD-19, LP-10
func turnKeepsState(t *testing.T, store memory.Store) {
	for _, noAutoSave := range []bool{false, true} {
		found := map[string]string{}
		a, _ := scriptedAgent(t, agent.Config{Handlers: []hook.Handler{stateSetter(found)}, OutputKey: "answer"}, scripted.Say("1"), scripted.Say("2"),
			scripted.Say("3"))
		c := local.Config{Store: store, User: "user-" + fmt.Sprint(noAutoSave), NoAutoSave: noAutoSave}
		s := openSession(t, a, c)
		ask(t, s, "a")
		want := map[string]string{"plain": "1", "plugin.key": `["a"]`, "user:name": `"Alice"`, "temp:x": ""}
		ask(t, s, "b")
		require.Equal(t, want, found, "in the next turn")
		require.NoError(t, s.Close(t.Context()))
		clear(found)
		c.ID = s.ID()
		ask(t, openSession(t, a, c), "c")
		require.Equal(t, want, found, "in another Session")
		state, err := store.GetState(t.Context(), session.Ref{Tenant: local.DefaultTenant, Session: s.ID()})
		require.NoError(t, err)
		require.NotContains(t, fmt.Sprintf("%s", state.Values), "secret")
		require.Contains(t, state.Values, "answer")
	}
}

// Req: LP-18
func turnAuthEndsWithTheTurn(t *testing.T, store memory.Store) {
	for _, noAutoSave := range []bool{false, true} {
		var seen []string
		var over func() error
		whoami, err := tool.Func("lookup", "Says who asks.", func(ctx context.Context, _ topic) (string, error) {
			over = ctx.Err
			auth, _ := execution.AuthFrom(ctx)
			token, _ := execution.Credential(ctx, "api")
			seen = append(seen, auth.Actor+" "+token.Reveal())
			return "done", nil
		})
		require.NoError(t, err)
		a, _ := scriptedAgent(t, agent.Config{Tools: []tool.Tool{whoami}}, lookupReply("1"), scripted.Say("1"), lookupReply("2"), scripted.Say("2"),
			lookupReply("3"), scripted.Say("3"))
		s := openSession(t, a, local.Config{Store: store, NoAutoSave: noAutoSave})
		var events []event.Event
		for _, actor := range []string{"alice", "bob", ""} {
			in := local.Input{Text: "who?"}
			if actor != "" {
				in.Auth = execution.Auth{Actor: actor, Credentials: map[string]secret.Value{"api": secret.New("token-of-" + actor)}}
			}
			all, err := runTurn(t, s, in)
			require.NoError(t, err)
			events = append(events, all...)
			require.Error(t, over(), "the turn has ended")
		}
		require.Equal(t, []string{"alice token-of-alice", "bob token-of-bob", " "}, seen)
		require.NoError(t, s.Close(t.Context()))
		said, info := storedMessages(t, store, s)
		require.NotContains(t, fmt.Sprintf("%+v %+v %+v %+v", said, info, events, s.Info()), "token-of")
	}
}

// A stop between two turns affects neither of them.
// Req: CO-63
func turnStopAffectsOnlyTheRunningTurn(t *testing.T, store memory.Store) {
	a, _ := scriptedAgent(t, agent.Config{Tools: []tool.Tool{lookup(t)}}, lookupReply("oslo"), scripted.Say("Fine."))
	s := openSession(t, a, local.Config{Store: store})
	s.Stop()
	var done event.TurnResult
	for e, err := range s.Turn(t.Context(), local.Input{Text: "Weather?"}) {
		require.NoError(t, err)
		switch p := e.Payload.(type) {
		case event.ToolFinished:
			s.Stop()
		case event.TurnResult:
			done = p
		}
	}
	require.Equal(t, event.Stopped, done.Reason)
	s.Stop()
	require.Equal(t, session.Ready, s.State())
	said, _ := storedMessages(t, store, s)
	require.Equal(t, []string{"user: Weather?", "ai: → lookup", "tool: found oslo", "ai: The turn was stopped."}, said)
	require.Equal(t, "Fine.", ask(t, s, "And now?").Result.Text)
}

// Req: AD-10
func turnIsCancelledByAReaderThatStops(t *testing.T, store memory.Store) {
	for _, noAutoSave := range []bool{false, true} {
		a, _ := scriptedAgent(t, agent.Config{Tools: []tool.Tool{lookup(t)}}, lookupReply("oslo", "bergen"), scripted.Say("Sunny."))
		s := openSession(t, a, local.Config{Store: store, NoAutoSave: noAutoSave})
		for e, err := range s.Turn(t.Context(), local.Input{Text: "Weather?"}) {
			require.NoError(t, err)
			if e.Kind() == "tool_execution" {
				break
			}
		}
		require.Equal(t, session.Ready, s.State())
		require.NoError(t, s.Save(t.Context()))
		said, info := storedMessages(t, store, s)
		require.Equal(t, "user: Weather?", said[0])
		require.Equal(t, "ai: → lookup → lookup (partial)", said[1])
		require.Len(t, said, 4, "every call has a result: %v", said)
		require.Equal(t, session.Ready, info.State)
		require.Equal(t, 1, info.Turns)
		_, err := runTurn(t, s, local.Input{Continue: true})
		require.NoError(t, err, "the model takes the conversation")
		// The session stays usable after a reader panics or ends its goroutine.
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer func() { _ = recover() }()
			for e, err := range s.Turn(t.Context(), local.Input{Text: "Again?"}) {
				panic(fmt.Sprint(e.ID(), err))
			}
		}()
		<-ended
		require.NotEqual(t, session.Busy, s.State())
		require.NoError(t, s.Save(t.Context()))
		_, info = storedMessages(t, store, s)
		require.Equal(t, session.Ready, info.State)
		require.Equal(t, 3, info.Turns)
	}
}

// Req: CO-49
func turnIsCancelledByItsContext(t *testing.T, store memory.Store) {
	never := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ends := hook.BeforeLLM(func(context.Context, *hook.LLMRequest) error { cancel(); return nil })
	a, _ := scriptedAgent(t, agent.Config{Handlers: []hook.Handler{ends}}, scripted.Reply{Wait: never}, scripted.Say("Fine."))
	s := openSession(t, a, local.Config{Store: store})
	var done event.TurnResult
	var failed error
	for e, err := range s.Turn(ctx, local.Input{Text: "Hello"}) {
		failed = err
		if p, last := e.Payload.(event.TurnResult); last {
			done = p
		}
	}
	require.Equal(t, failure.UserCancelled, failure.ModeOf(failed))
	require.Equal(t, event.Interrupted, done.Reason)
	require.Equal(t, session.Ready, s.State())
	require.Equal(t, "Fine.", ask(t, s, "Again").Result.Text)
	_, info := storedMessages(t, store, s)
	require.Equal(t, session.Ready, info.State)
}

// A turn with many tool calls, and with a round of many calls, is remembered whole.
func turnLongTurnIsStoredWhole(t *testing.T, store memory.Store) {
	var queries []string
	for i := range 64 {
		queries = append(queries, fmt.Sprint(i))
	}
	replies := []scripted.Reply{lookupReply(queries...)}
	for i := range 40 {
		replies = append(replies, lookupReply(fmt.Sprint(100+i)))
	}
	replies = append(replies, scripted.Say("Done."), scripted.Fail(failure.New(failure.ResourceAPI, "test", "down")))
	a, model := scriptedAgent(t, agent.Config{Tools: []tool.Tool{lookup(t)}, MaxIterations: 50}, replies...)
	s := openSession(t, a, local.Config{Store: store, Window: memory.MaxWindow, MaxMessages: 1000})
	ask(t, s, "Look")
	said, info := storedMessages(t, store, s)
	require.Len(t, said, 1+65+80+1)
	require.EqualValues(t, 2, s.Info().Size.Messages)
	require.Equal(t, "ai: Done.", said[len(said)-1])
	require.Equal(t, session.Ready, info.State)
	_, err := runTurn(t, s, local.Input{Text: "More"})
	require.Error(t, err)
	requests := model.Requests()
	require.Equal(t, append(said, "user: More"), transcript(requests[len(requests)-1].Messages))
	messages, err := s.Messages(t.Context(), 0)
	require.NoError(t, err)
	require.NoError(t, conversation.CheckRounds(messages))
}

// If the store rejects the state, the turn fails and its messages are kept.
// Req: LP-17
func turnStateThatCannotBeStoredIsAnError(t *testing.T, store memory.Store) {
	long := hook.AfterAgent(func(_ context.Context, turn *hook.Turn) (string, error) {
		if turn.Info().Turn > 1 {
			return "", nil
		}
		return "", turn.Memory().Set("long", strings.Repeat("a", memory.MaxStateValueBytes))
	})
	a, _ := scriptedAgent(t, agent.Config{Handlers: []hook.Handler{long}}, scripted.Say("Hi."), scripted.Say("Fine."))
	s := openSession(t, a, local.Config{Store: store})
	all, err := runTurn(t, s, local.Input{Text: "Hello"})
	require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err))
	require.Equal(t, event.Failed, resultOf(all).Reason)
	require.Equal(t, "user_invalid_input", resultOf(all).ErrorType)
	require.Empty(t, resultOf(all).State)
	require.Equal(t, session.Failed, s.State())
	said, info := storedMessages(t, store, s)
	require.Equal(t, []string{"user: Hello", "ai: Hi. (partial)"}, said)
	require.Equal(t, session.Failed, info.State)
	require.Equal(t, "Fine.", ask(t, s, "Again").Result.Text)
	require.True(t, slices.Contains(kindsOf(all), "turn_result"))
}

// The session stores only what the flow answers, not what its agents say to each other.
// Req: C-26
func turnAFlowKeepsItsAnswer(t *testing.T, store memory.Store) {
	finder, _ := scriptedAgent(t, agent.Config{Name: "finder", Tools: []tool.Tool{lookup(t)}}, lookupReply("oslo"), scripted.Say("Rain."),
		scripted.Say("Rain."))
	writer, model := scriptedAgent(t, agent.Config{Name: "writer"}, scripted.Say("It rains."), scripted.Say("Still."))
	flow, err := flow.Sequence(agent.Config{Name: "flow"}, finder, writer)
	require.NoError(t, err)
	s := openSession(t, flow, local.Config{Store: store})
	ask(t, s, "Weather?")
	said, _ := storedMessages(t, store, s)
	require.Equal(t, []string{"user: Weather?", "ai: It rains."}, said)
	ask(t, s, "And now?")
	require.Equal(t, []string{"user: Weather?", "ai: It rains.", "user: And now?"}, transcript(model.Requests()[1].Messages)[:3])
}
