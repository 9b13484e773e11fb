package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/agenttest"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/ownership"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Req: AD-15
func TestHandlers_SeeTheDataOfTheirTurn(t *testing.T) {
	var w watchedAgent
	var info hook.Info
	s := w.session(t, w.before("1", func(ctx context.Context, turn *hook.Turn) (string, error) {
		info = turn.Info()
		trace, _ := turn.Trace().Get("trace_id")
		require.Equal(t, info.TraceID, trace)
		require.Equal(t, []conversation.Message{conversation.User("hello")}, withoutStoredFields(turn.Messages()))
		require.NoError(t, turn.State().Set("_seen", true))
		_, err := turn.Memory().SaveArtifact(ctx, "a.txt", "text/plain", []byte("content"))
		require.NoError(t, err)
		content, mediaType, err := turn.Memory().LoadArtifact(ctx, "a.txt", 1)
		require.NoError(t, err)
		require.Equal(t, "content text/plain", string(content)+" "+mediaType)
		return "", nil
	}))
	s.Try("hello", func(inv *agent.Invocation) {
		inv.Trace = ownership.NewTraceView(map[string]string{"trace_id": inv.Step.TraceID})
	})
	want := hook.Info{
		Agent: "research", Model: scripted.Name, Session: "session-1", User: agenttest.User,
		TurnID: "session-1-turn-1", TraceID: "trace-session-1-turn-1", Turn: 1, Step: 1, Attempt: 1, Prompt: "hello",
	}
	require.Empty(t, cmp.Diff(want, info))
	require.Equal(t, "content", s.Artifact("a.txt"))
}

// withoutStoredFields returns messages without the fields that the store adds.
func withoutStoredFields(messages []conversation.Message) []conversation.Message {
	var all []conversation.Message
	for _, m := range messages {
		m.Sequence, m.Turn, m.Time = 0, 0, time.Time{}
		all = append(all, m)
	}
	return all
}

// modelWithContextSize is a model with a known context size.
type modelWithContextSize struct{ *scripted.Model }

func (modelWithContextSize) ContextSize() int64 { return 1000 }

// Req: CO-21
func TestAgent_PassesTheContextSizeOfItsModel(t *testing.T) {
	var seen []float64
	note := hook.AfterLLM(func(_ context.Context, reply *hook.LLMReply) error {
		seen = append(seen, reply.ContextPercent())
		return nil
	})
	said := scripted.Reply{Deltas: []string{"hi"}, Usage: execution.Usage{InputTokens: 256}}
	agenttest.Run(t, build(t, agent.Config{Model: modelWithContextSize{scripted.New(said)}, Handlers: []hook.Handler{note}}), "hello")
	agenttest.Run(t, build(t, agent.Config{Model: scripted.New(said), Handlers: []hook.Handler{note}}), "hello")
	require.Equal(t, []float64{25.6, 0.2}, seen)
}

// Req: AD-17
func TestMemory_ReadsChangesBeforeTheSession(t *testing.T) {
	var w watchedAgent
	s := w.session(t, w.before("1", func(ctx context.Context, turn *hook.Turn) (string, error) {
		m := turn.Memory()
		var city string
		require.NoError(t, m.Read(ctx, "city", &city))
		require.Equal(t, "Oslo", city)
		require.NoError(t, m.Set("city", "Bergen"))
		require.NoError(t, m.Read(ctx, "city", &city))
		require.Equal(t, "Bergen", city)

		_, err := m.Get(ctx, "country")
		require.ErrorIs(t, err, hook.ErrNoKey)
		require.True(t, failure.Is(err, failure.NotFound), "%v", err)
		require.NoError(t, m.Delete("gone"))
		_, err = m.Get(ctx, "gone")
		require.ErrorIs(t, err, hook.ErrNoKey)
		return "", nil
	}))
	s.Set("city", "Oslo")
	s.Set("gone", 1)
	require.Equal(t, map[string]any{"city": "Bergen"}, s.Say("hello").State)
}

// Req: AD-18, AD-19
func TestHandlers_ChangesOfAListAreOneDelta(t *testing.T) {
	var w watchedAgent
	var seen []string
	look := func(ctx context.Context, turn *hook.Turn) (string, error) {
		for _, key := range []string{"mine", "user:mine", "app:mine", "temp:mine"} {
			if value, err := turn.Memory().Get(ctx, key); err == nil {
				seen = append(seen, key+" "+string(value))
			}
		}
		return "", nil
	}
	handlers := []hook.Handler{w.before("look", look)}
	for _, key := range []string{"mine", "user:mine", "app:mine", "temp:mine"} {
		handlers = append(handlers, w.before("set "+key, func(_ context.Context, turn *hook.Turn) (string, error) {
			return "", turn.Memory().Set(key, turn.Info().Turn)
		}))
	}
	handlers = append(handlers, w.after("look", look))
	s := w.session(t, handlers...)

	turn := s.Say("hello")
	require.Equal(t, []string{"mine 1", "user:mine 1", "app:mine 1", "temp:mine 1"}, seen, "the turn itself sees all")
	require.Len(t, messages(turn), 1)
	require.Len(t, messages(turn)[0].State, 4)
	lasting := map[string]json.RawMessage{"mine": json.RawMessage("1"), "user:mine": json.RawMessage("1"), "app:mine": json.RawMessage("1")}
	require.Equal(t, lasting, turn.Result.State, "temp: is not stored")

	seen = nil
	s.Say("again")
	require.Equal(t, []string{"mine 1", "user:mine 1", "app:mine 1"}, seen[:3], "the next turn sees what lasts")
	require.NotContains(t, seen[3:], "temp:mine 1")

	seen = nil
	w.model = scripted.New()
	s.Another().Try("hello")
	require.Equal(t, []string{"user:mine 2", "app:mine 2"}, seen[:2], "another session of the user")
}

// An agent with a Run function changes state through its events, because the function has no handlers.
// Req: AD-18
func TestFunction_ChangesStateByItsEvents(t *testing.T) {
	delta := stateChange("a", "1")
	a := build(t, agent.Config{Run: func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) {
			_ = yield(event.Event{Payload: event.Message{State: delta}}, nil) &&
				yield(event.Event{Payload: event.Message{Text: "done", State: stateChange("temp:b", "2")}}, nil) &&
				yield(event.Event{Author: "other", Payload: event.Message{State: stateChange("c", "3")}}, nil)
		}
	}})
	s := agenttest.NewSession(t, a)
	turn := s.Say("hello")
	require.Equal(t, map[string]any{"a": 1.0}, turn.State)
	require.Len(t, messages(turn), 3, "emitted once")

	delta = stateChange("trace_id", `"x"`)
	require.True(t, failure.Is(s.Try("hello").Err, failure.StateViolation))
}

// A tool can read its call and the session's state, artifacts and history. AskUser is its only way to ask for
// input, also for a confirmation.
// Req: AD-20
func TestTool_SeesItsCallAndMayAskTheUser(t *testing.T) {
	type in struct {
		Confirmed bool `json:"confirmed,omitempty"`
	}
	remove, err := tool.Func("remove", "Removes all.", func(ctx context.Context, in in) (string, error) {
		running := hook.InTool(ctx)
		require.Equal(t, "call-1", running.CallID)
		require.NoError(t, running.State().Set("_calls", 1))
		found, err := running.Memory().Search(ctx, "secret garden", 5)
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, "Tell me of the secret garden.", found[0].Text)
		if !in.Confirmed {
			return "", tool.AskUser("Remove all?")
		}
		_, err = running.Memory().SaveArtifact(ctx, "removed.txt", "text/plain", []byte("all"))
		return "removed", errors.Join(err, running.Memory().Set("removed", true))
	})
	require.NoError(t, err)
	call := func(arguments string) scripted.Reply {
		return scripted.Call(conversation.ToolCall{ID: "call-1", Name: "remove", Arguments: arguments})
	}
	a := build(t, agent.Config{
		Model: scripted.New(scripted.Say("It blooms."), call(`{}`), call(`{"confirmed": true}`), scripted.Say("Done.")),
		Tools: []tool.Tool{remove},
	})
	s := agenttest.NewSession(t, a)
	s.Say("Tell me of the secret garden.")

	turn := s.Another().Say("Remove all.")
	require.Equal(t, "Remove all?", turn.Text)
	require.True(t, turn.Result.Result.InputRequired)
	require.Equal(t, event.InputRequired, turn.Result.Reason)
	require.Nil(t, turn.State["removed"])

	turn = s.Say("Yes.")
	require.Equal(t, "Done.", turn.Text)
	require.Equal(t, []event.Message{{State: stateChange("removed", "true"), Artifacts: map[string]int{"removed.txt": 1}}}, messages(turn))
	require.Equal(t, map[string]any{"removed": true}, turn.State)
}

// Each event has its turn, step and author, and its changes of state.
// Req: AD-22
func TestEvents_NameTheirTurnAndAuthor(t *testing.T) {
	var w watchedAgent
	s := w.session(t, w.before("1", func(ctx context.Context, turn *hook.Turn) (string, error) {
		_, err := turn.Memory().SaveArtifact(ctx, "a.txt", "text/plain", []byte("a"))
		return "", errors.Join(err, turn.Memory().Set("a", 1))
	}))
	began := time.Now()
	seen := map[string]bool{}
	for range 2 {
		turn := s.Say("hello")
		for i, e := range turn.Events {
			require.Equal(t, i+1, e.Sequence)
			require.False(t, seen[e.ID()], "%s twice", e.ID())
			seen[e.ID()] = true
			require.False(t, e.Time.Before(began) || e.Time.After(time.Now()))
			began = e.Time
			require.Empty(t, e.Branch)
			want := "research"
			if i == 0 {
				want = "user"
			}
			require.Equal(t, want, e.Author)
			text, err := json.Marshal(e)
			require.NoError(t, err)
			var entry struct{ ID, Type string }
			require.NoError(t, json.Unmarshal(text, &entry))
			require.Equal(t, e.ID()+" "+e.Kind(), entry.ID+" "+entry.Type)
		}
		require.Equal(t, turn.Result.Turn, len(seen)/len(turn.Events))
	}
}
