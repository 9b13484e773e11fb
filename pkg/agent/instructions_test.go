package agent_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/agenttest"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// openWithInstructions opens a session of an agent with these instructions. The session has an artifact. It
// returns the agent's model.
func openWithInstructions(t *testing.T, c agent.Config, answers ...string) (*agenttest.Session, *scripted.Model) {
	t.Helper()
	var replies []scripted.Reply
	for _, answer := range answers {
		replies = append(replies, scripted.Say(answer))
	}
	model := scripted.New(replies...)
	c.Model = model
	c.Handlers = append(c.Handlers, hook.BeforeAgent(func(ctx context.Context, turn *hook.Turn) (string, error) {
		_, err := turn.Memory().SaveArtifact(ctx, "report.md", "text/markdown", []byte("# Q3"))
		return "", err
	}))
	s := agenttest.NewSession(t, build(t, c))
	s.Set("city", "Oslo")
	s.Set("visits", 3)
	s.Set("tags", []string{"a", "{b}"})
	s.Set("brace", "{city}")
	s.Set("app:shop", "Troupe")
	s.Set("user:name", "Ann")
	return s, model
}

// Req: AD-30
func TestInstructions_AreFilledFromTheSession(t *testing.T) {
	for text, want := range map[string]string{
		"In {city}, {user:name} of {app:shop}.": "In Oslo, Ann of Troupe.",
		"{visits} visits, {tags}":               `3 visits, ["a","{b}"]`,
		"Value: {brace}":                        "Value: {city}",
		"[{country?}]":                          "[]",
		"[{city?}]":                             "[Oslo]",
		"{artifact.report.md}":                  "# Q3",
		"[{artifact.none?}]":                    "[]",
		"{{city}} and {{country?}}":             "{city} and {country?}",
		`{"city": "{city}", "n": {"m": 1}}`:     `{"city": "Oslo", "n": {"m": 1}}`,
		`{"a": {city}}`:                         `{"a": Oslo}`,
		"{{city}":                               "{Oslo",
		"{} { city } {0} {a b} {,} {":           "{} { city } {0} {a b} {,} {",
		"if x {\n\treturn y\n}":                 "if x {\n\treturn y\n}",
	} {
		t.Run(text, func(t *testing.T) {
			s, model := openWithInstructions(t, agent.Config{Instructions: text}, "hi")
			s.Say("hello")
			require.Equal(t, want, model.Requests()[0].System)
		})
	}
}

// Req: RA-22
func TestInstructions_ContainTheConversationSoFar(t *testing.T) {
	s, model := openWithInstructions(t, agent.Config{Instructions: "Before:\n{session.history}"}, "hi", "fine")
	s.Say("hello")
	s.Say("how are you?")
	require.Equal(t, "Before:\nNo previous conversation.", model.Requests()[0].System)
	require.Equal(t, "Before:\nUser: hello\nAI: hi", model.Requests()[1].System)
}

// Req: AD-30
func TestInstructions_FailWithoutARequiredKey(t *testing.T) {
	for _, key := range []string{"country", "user:age", "artifact.none", "temp:x"} {
		t.Run(key, func(t *testing.T) {
			s, model := openWithInstructions(t, agent.Config{Instructions: "In {" + key + "}."}, "hi")
			turn := s.Try("hello")
			require.True(t, failure.Is(turn.Err, failure.AgentValidation), "%v", turn.Err)
			require.ErrorContains(t, turn.Err, "the instructions want {"+key+"}")
			require.ErrorContains(t, turn.Err, "write {"+key+"?}")
			require.Equal(t, event.Failed, turn.Result.Reason)
			require.Empty(t, model.Requests())
			if !strings.HasPrefix(key, "artifact.") {
				require.ErrorIs(t, turn.Err, hook.ErrNoKey)
			}
		})
	}
}

func TestInstructions_SeeStateThatBeforeAgentSet(t *testing.T) {
	set := hook.BeforeAgent(func(_ context.Context, turn *hook.Turn) (string, error) {
		return "", turn.Memory().Set("temp:mood", "glad")
	})
	s, model := openWithInstructions(t, agent.Config{Instructions: "Be {temp:mood}.", Handlers: []hook.Handler{set}}, "hi")
	s.Say("hello")
	require.Equal(t, "Be glad.", model.Requests()[0].System)
}

// Without a session only optional placeholders are allowed.
func TestInstructions_WithoutASessionHaveOnlyOptionalKeys(t *testing.T) {
	model := scripted.New(scripted.Say("hi"))
	a := build(t, agent.Config{Model: model, Instructions: "[{city?}{artifact.a?}]"})
	_, _, err := execute(t.Context(), a, questionStep("hello"), discardEvents)
	require.NoError(t, err)
	require.Equal(t, "[]", model.Requests()[0].System)

	a = build(t, agent.Config{Model: model, Instructions: "{artifact.a}"})
	_, _, err = execute(t.Context(), a, questionStep("hello"), discardEvents)
	require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)
}

// Req: AD-30
func TestAgent_StoresItsAnswerUnderItsOutputKey(t *testing.T) {
	s, model := openWithInstructions(t, agent.Config{Instructions: "Before: {last?}", OutputKey: "last"}, "one", "two")
	turn := s.Say("hello")
	require.Equal(t, "one", turn.State["last"])
	require.Equal(t, "two", s.Say("again").State["last"])
	require.Equal(t, "Before: one", model.Requests()[1].System)
	require.JSONEq(t, `"one"`, string(turn.Result.State["last"]))

	var changed []event.Message
	for _, e := range turn.Events {
		if p, ok := e.Payload.(event.Message); ok && p.State["last"] != nil {
			changed = append(changed, p)
		}
	}
	require.Len(t, changed, 1)
}

func TestAgent_CutsAnAnswerThatExceedsTheLimitOfAKey(t *testing.T) {
	long := strings.Repeat("<ä>", memory.MaxStateValueBytes/4)
	s, _ := openWithInstructions(t, agent.Config{OutputKey: "last"}, long)
	turn := s.Say("hello")
	require.Equal(t, long, turn.Text)
	stored, ok := turn.State["last"].(string)
	require.True(t, ok)
	require.True(t, strings.HasPrefix(long, stored))
	require.Greater(t, len(stored), memory.MaxStateValueBytes/8)
	require.Equal(t, agent.ReasonTextCut, turn.Warnings[0].Reason)
	require.Equal(t, long, s.History()[1].Text)
}
