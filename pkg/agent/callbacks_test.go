package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/agenttest"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

// watchedAgent is an agent that says "hi". It records which handlers ran and when its model was called.
type watchedAgent struct {
	log   []string
	model *scripted.Model
}

// handlerFunc is the function of a BeforeAgent or AfterAgent handler in a test.
type handlerFunc func(context.Context, *hook.Turn) (string, error)

func (w *watchedAgent) before(name string, fn handlerFunc) hook.Handler {
	return hook.BeforeAgent(func(ctx context.Context, t *hook.Turn) (string, error) {
		w.log = append(w.log, name)
		return fn(ctx, t)
	})
}

func (w *watchedAgent) after(name string, fn handlerFunc) hook.Handler {
	return hook.AfterAgent(func(ctx context.Context, t *hook.Turn) (string, error) {
		w.log = append(w.log, name)
		return fn(ctx, t)
	})
}

// session opens a session of the agent with the given handlers. After them come handlers that record whether the
// turn continued.
func (w *watchedAgent) session(t *testing.T, handlers ...hook.Handler) *agenttest.Session {
	t.Helper()
	w.model = scripted.New(scripted.Say("hi"), scripted.Say("hi again"))
	handlers = append(handlers,
		hook.AfterUserInput(func(context.Context, *hook.Turn) error { w.log = append(w.log, "main"); return nil }),
		hook.OnComplete(func(context.Context, *hook.Completion) error { w.log = append(w.log, "complete"); return nil }))
	return agenttest.NewSession(t, build(t, agent.Config{Model: w.model, Handlers: handlers}))
}

// Handler functions that these tests share.
func noReply(context.Context, *hook.Turn) (string, error)   { return "", nil }
func replyText(context.Context, *hook.Turn) (string, error) { return "no need to ask", nil }
func replyEnd(_ context.Context, t *hook.Turn) (string, error) {
	t.End()
	return "", nil
}

func replySetState(key string, value any) handlerFunc {
	return func(_ context.Context, t *hook.Turn) (string, error) { return "", t.Memory().Set(key, value) }
}

func replyError(err error) handlerFunc {
	return func(context.Context, *hook.Turn) (string, error) { return "", err }
}

// messages returns the messages that the handlers of a turn emitted.
func messages(turn agenttest.Turn) []event.Message {
	var all []event.Message
	for _, e := range turn.Events {
		if p, ok := e.Payload.(event.Message); ok {
			all = append(all, p)
		}
	}
	return all
}

func stateChange(key, value string) map[string]json.RawMessage {
	return map[string]json.RawMessage{key: json.RawMessage(value)}
}

var errDisk = failure.New(failure.SystemDisk, "test", "the disk is full")

// Req: AD-3
func TestBeforeAgent_FirstAnswerOrErrorStopsTheRest(t *testing.T) {
	for name, tc := range map[string]struct {
		second handlerFunc
		want   []string
	}{
		"none":    {noReply, []string{"1", "2", "3", "main", "complete"}},
		"answers": {replyText, []string{"1", "2"}},
		"fails":   {replyError(errDisk), []string{"1", "2"}},
		"ends":    {replyEnd, []string{"1", "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			var w watchedAgent
			w.session(t, w.before("1", noReply), w.before("2", tc.second), w.before("3", noReply)).Try("hello")
			require.Equal(t, tc.want, w.log)
		})
	}
}

// Req: AD-4
func TestBeforeAgent_AnswerIsOneEventAndEndsTheRun(t *testing.T) {
	var w watchedAgent
	s := w.session(t, w.before("1", replySetState("a", 1)), w.before("2", replyText), w.after("after", noReply))
	turn := s.Say("hello")
	require.Equal(t, []string{"1", "2"}, w.log)
	require.Empty(t, w.model.Requests())
	require.Equal(t, []string{"user_input", "message", "turn_result"}, turn.Kinds())
	require.Equal(t, []event.Message{{Text: "no need to ask", State: stateChange("a", "1")}}, messages(turn))
	require.Equal(t, "research", turn.Events[1].Author)
	require.Equal(t, "no need to ask", turn.Text)
	require.Equal(t, event.Natural, turn.Result.Reason)
	require.Equal(t, map[string]any{"a": 1.0}, turn.State)
	require.Equal(t, "no need to ask", s.History()[1].Text)
}

// Req: AD-5, C-28
func TestBeforeAgent_ErrorSkipsTheAgent(t *testing.T) {
	var w watchedAgent
	turn := w.session(t, w.before("1", replyError(errDisk)), w.after("after", noReply)).Try("hello")
	require.ErrorIs(t, turn.Err, errDisk)
	require.True(t, failure.Is(turn.Err, failure.SystemDisk), "%v", turn.Err)
	require.Equal(t, []string{"1"}, w.log)
	require.Empty(t, w.model.Requests())
	require.Equal(t, []string{"user_input", "error", "turn_result"}, turn.Kinds())
	require.Equal(t, event.Failed, turn.Result.Reason)
	require.Equal(t, "system_disk", turn.Result.ErrorType)
}

// Req: AD-5a
func TestHandlers_ErrorDropsTheChangesOfTheList(t *testing.T) {
	var w watchedAgent
	turn := w.session(t, w.before("1", replySetState("a", 1)), w.before("2", replyError(errDisk))).Try("hello")
	require.ErrorContains(t, turn.Err, "hook.before_agent: system_disk: the disk is full")
	require.Empty(t, messages(turn))
	require.Empty(t, turn.Result.State)
	require.Empty(t, turn.State)

	turn = w.session(t, w.after("1", replySetState("a", 1)), w.after("2", replyError(errDisk))).Try("hello")
	require.ErrorContains(t, turn.Err, "hook.after_agent: system_disk: the disk is full")
	require.Empty(t, messages(turn))
	require.Empty(t, turn.Result.State)

	// A handler that returns both a text and an error has failed: the text is ignored.
	turn = w.session(t, w.before("1", func(context.Context, *hook.Turn) (string, error) { return "yes", errDisk })).Try("hello")
	require.ErrorIs(t, turn.Err, errDisk)
	require.Empty(t, messages(turn))

	p := hook.Plugin{Name: "quota", Handlers: []hook.Handler{w.before("p", replyError(errors.New("secret")))}}
	turn = agenttest.NewSession(t, build(t, agent.Config{Model: w.model, Plugins: []hook.Plugin{p}})).Try("hello")
	require.Equal(t, "the handler before_agent of plugin quota failed and gave no reason; the log of the agent has the error", failure.PlainMessage(turn.Err))
}

// Req: AD-6
func TestBeforeAgent_ChangesAreOneEventBeforeTheAgent(t *testing.T) {
	save := func(ctx context.Context, turn *hook.Turn) (string, error) {
		_, err := turn.Memory().SaveArtifact(ctx, "a.txt", "text/plain", []byte("a"))
		return "", err
	}
	for name, tc := range map[string]struct {
		handlers []handlerFunc
		want     event.Message
	}{
		"state":    {[]handlerFunc{replySetState("a", 1), replySetState("a", 2)}, event.Message{State: stateChange("a", "2")}},
		"artifact": {[]handlerFunc{noReply, save}, event.Message{Artifacts: map[string]int{"a.txt": 1}}},
		"both":     {[]handlerFunc{save, replySetState("a", 2)}, event.Message{State: stateChange("a", "2"), Artifacts: map[string]int{"a.txt": 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			var w watchedAgent
			turn := w.session(t, w.before("1", tc.handlers[0]), w.before("2", tc.handlers[1])).Say("hello")
			require.Equal(t, []event.Message{tc.want}, messages(turn))
			isUpdate := func(kind string) bool { return kind == "artifact_update" } // of what is stored already
			require.Equal(t, []string{"user_input", "message", "llm_call", "assistant", "turn_result"}, slices.DeleteFunc(turn.Kinds(), isUpdate))
			require.Equal(t, []string{"1", "2", "main", "complete"}, w.log)
			require.Equal(t, "hi", turn.Text)
		})
	}
}

// Req: AD-7
func TestHandlers_EmitNothingWithoutChanges(t *testing.T) {
	var w watchedAgent
	turn := w.session(t, w.before("1", noReply), w.after("2", noReply)).Say("hello")
	require.Equal(t, []string{"user_input", "llm_call", "assistant", "turn_result"}, turn.Kinds())
	require.Equal(t, []string{"1", "main", "2", "complete"}, w.log)
}

// Req: AD-8
func TestBeforeAgent_EndSkipsTheAgent(t *testing.T) {
	var w watchedAgent
	turn := w.session(t, w.before("1", replySetState("a", 1)), w.before("2", replyEnd), w.before("3", replyText), w.after("after", noReply)).Say("hello")
	require.Equal(t, []string{"1", "2"}, w.log)
	require.Empty(t, w.model.Requests())
	require.Equal(t, []event.Message{{State: stateChange("a", "1")}}, messages(turn), "the change is applied")
	require.Empty(t, turn.Text)
	require.Equal(t, event.Stopped, turn.Result.Reason)
	require.Empty(t, turn.Result.Messages)
	require.Equal(t, map[string]any{"a": 1.0}, turn.State)
}

// Req: AD-9
func TestRun_PassesEventsOnInOrder(t *testing.T) {
	a := build(t, agent.Config{Name: "root", Run: func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) {
			_ = yield(event.Event{Payload: event.Thinking{Text: "one"}}, nil) &&
				yield(event.Event{Author: "other", Payload: event.Message{Text: "two"}}, nil) &&
				yield(event.Event{Payload: event.Answer{Text: "three", Reason: event.Natural}}, nil)
		}
	}})
	turn := agenttest.Run(t, a, "hello")
	var authors []string
	for _, e := range turn.Events {
		authors = append(authors, e.Author+" "+e.Kind())
	}
	require.Equal(t, []string{"user user_input", "root thinking", "other message", "root assistant", "root internal:appended", "root turn_result"},
		authors)
	require.Equal(t, "three", turn.Text)
}

// Req: AD-12, C-29
func TestAfterAgent_FirstAnswerIsAdded(t *testing.T) {
	var w watchedAgent
	s := w.session(t, w.after("1", replySetState("a", 1)), w.after("2", replyText), w.after("3", replyText))
	turn := s.Say("hello")
	require.Equal(t, []string{"main", "1", "2", "complete"}, w.log, "a reply does not end the turn")
	require.Equal(t, []event.Message{{Text: "no need to ask", State: stateChange("a", "1")}}, messages(turn))
	require.Equal(t, []string{"user_input", "llm_call", "assistant", "message", "turn_result"}, turn.Kinds())
	require.Equal(t, "hi", turn.Text, "the answer stays")
	require.Len(t, s.History(), 3)
	require.Equal(t, conversation.Assistant("research", "no need to ask"), turn.Result.Messages[1])

	w.log = nil
	turn = w.session(t, w.after("1", replySetState("a", 1)), w.after("2", noReply)).Say("hello")
	require.Equal(t, []event.Message{{State: stateChange("a", "1")}}, messages(turn))

	w.log = nil
	turn = w.session(t, w.after("1", replyError(errDisk)), w.after("2", replyText)).Try("hello")
	require.ErrorIs(t, turn.Err, errDisk)
	require.Equal(t, []string{"main", "1"}, w.log)

	w.log = nil
	turn = w.session(t, w.after("1", replyEnd), w.after("2", replyText)).Say("hello")
	require.Equal(t, []string{"main", "1"}, w.log, "a handler may end it")
	require.Equal(t, "hi", turn.Text)
}

// Req: AD-13
func TestHandlers_PluginsRunFirstAndShareChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		plugin handlerFunc
		want   []string
		told   event.Message
	}{
		"continue": {replySetState("a", 1), []string{"plugin", "own"}, event.Message{State: map[string]json.RawMessage{
			"a": json.RawMessage("1"),
			"b": json.RawMessage("2"),
		}}},
		"answered": {replyText, []string{"plugin"}, event.Message{Text: "no need to ask"}},
	} {
		t.Run(name, func(t *testing.T) {
			var w watchedAgent
			a := build(t, agent.Config{
				Model:    scripted.New(scripted.Say("hi")),
				Handlers: []hook.Handler{w.before("own", replySetState("b", 2))},
				Plugins:  []hook.Plugin{{Name: "p", Handlers: []hook.Handler{w.before("plugin", tc.plugin)}}},
			})
			require.Equal(t, []event.Message{tc.told}, messages(agenttest.Run(t, a, "hello")))
			require.Equal(t, tc.want, w.log)
		})
	}
}

// Req: AD-14
func TestAfterAgent_ChangesAreNotPartOfTheAnswer(t *testing.T) {
	var w watchedAgent
	turn := w.session(t, w.before("1", replySetState("a", 1)), w.after("2", replyText)).Say("hello")
	var final []string
	for _, e := range turn.Events {
		if e.Final() {
			final = append(final, e.Kind())
		}
	}
	require.Equal(t, []string{"assistant", "message"}, final)
	require.False(t, event.Event{Payload: event.Message{State: stateChange("a", "1")}}.Final())

	// A function that only changes state gives no answer.
	a := build(t, agent.Config{Run: func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) {
			yield(event.Event{Payload: event.Message{State: stateChange("a", "1")}}, nil)
		}
	}})
	_, _, err := execute(t.Context(), a, questionStep("hi"), discardEvents)
	require.True(t, failure.Is(err, failure.AgentLogic), "%v", err)
}

// A step that chooses a route emits no text, even if a handler chooses the route.
func TestHandlers_MayChooseTheRoute(t *testing.T) {
	model := scripted.New()
	a := build(t, agent.Config{Model: model, Handlers: []hook.Handler{
		hook.BeforeAgent(func(context.Context, *hook.Turn) (string, error) { return "research", nil }),
	}})
	turn := agenttest.NewSession(t, a).Try("hello", func(inv *agent.Invocation) { inv.Step.Routes = []string{"clarification", "research"} })
	require.NoError(t, turn.Err)
	require.Empty(t, messages(turn))
	require.Empty(t, turn.Text)
	require.Equal(t, "research", turn.Result.Result.NextAgent)
	require.Equal(t, execution.Usage{}, turn.Result.Result.Usage)
}
