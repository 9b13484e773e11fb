package memory

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

func newDelta(pairs ...string) map[string]json.RawMessage {
	d := map[string]json.RawMessage{}
	for i := 0; i < len(pairs); i += 2 {
		d[pairs[i]] = json.RawMessage(pairs[i+1])
	}
	return d
}

// Req: SO-12
func TestCheckDelta_RejectsInvalidKeysAndValues(t *testing.T) {
	long := func(n int) string { return `"` + strings.Repeat("a", n-2) + `"` }
	for key, row := range map[string]struct {
		value string
		mode  failure.Mode
	}{
		"_scratch":                              {"1", failure.StateViolation},
		"temp:x":                                {"1", failure.StateViolation},
		"trace_id":                              {"1", failure.StateViolation},
		"routing":                               {"", failure.StateViolation},
		"config":                                {"1", failure.StateViolation},
		"":                                      {"1", failure.UserInvalidInput},
		strings.Repeat("k", MaxStateKeyBytes+1): {"1", failure.UserInvalidInput},
		"a":                                     {"{", failure.UserInvalidInput},
		"app:b":                                 {"one", failure.UserInvalidInput},
		"user:c":                                {long(MaxStateValueBytes + 1), failure.UserInvalidInput},
		"d":                                     {"\"\xff\"", failure.UserInvalidInput},
		"\xff":                                  {"1", failure.UserInvalidInput},
	} {
		err := CheckDelta("op", newDelta("fine", "1", key, row.value))
		require.True(t, failure.Is(err, row.mode), "%q: %v", key, err)
		e := err.(*failure.Error) //nolint:errorlint // it is one, or the line above fails
		require.Equal(t, key, e.Facts["key"])
		require.Equal(t, "op", e.Op)
	}
	require.NoError(t, CheckDelta("op", nil))
	require.NoError(t, CheckDelta("op", newDelta(
		"a", "null", "app:b", `{"c":[1,2.5,"x"]}`, "user:d", "", "facts", "[]", "history", "{}",
		strings.Repeat("k", MaxStateKeyBytes), long(MaxStateValueBytes))))
}

func TestCheckDelta_RejectsTooManyKeys(t *testing.T) {
	d := map[string]json.RawMessage{}
	for i := range MaxDeltaKeys {
		d[fmt.Sprint(i)] = json.RawMessage("1")
	}
	require.NoError(t, CheckDelta("op", d))
	d["more"] = nil
	require.True(t, failure.Is(CheckDelta("op", d), failure.UserInvalidInput))
}

// Req: AD-19
func TestDeltaScope_ReturnsTheCommonScope(t *testing.T) {
	for want, d := range map[Scope]map[string]json.RawMessage{
		ScopeSession: newDelta("a", "1", "application", "2", "user", "3", "apps:x", "4"),
		ScopeUser:    newDelta("user:a", "1", "user:", "2"),
		ScopeApp:     newDelta("app:a", "1", "app:user:b", "2"),
	} {
		scope, err := DeltaScope("op", d)
		require.NoError(t, err)
		require.Equal(t, want, scope)
	}
	for _, d := range []map[string]json.RawMessage{nil, newDelta("a", "1", "app:a", "1"), newDelta("app:a", "1", "user:a", "1")} {
		_, err := DeltaScope("op", d)
		require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
	}
}

func TestQuery_ScoreIsTheShareOfWordsFound(t *testing.T) {
	q := NewQuery("Blue, SEA-side: blue 7!")
	require.Equal(t, Query{"blue": true, "sea": true, "side": true, "7": true}, q)
	for text, want := range map[string]float64{
		"": 0, "nothing": 0, "blueish seas": 0, "the SEA": 0.25, "sea sea sea": 0.25, "by the side of the blue sea": 0.75, "7 blue side sea": 1,
	} {
		require.InDelta(t, want, q.Score(text), 1e-9, text)
	}
	require.Zero(t, NewQuery("?!").Score("?!"))
	require.InDelta(t, 1, NewQuery("ÄRGER").Score("ärger"), 1e-9)
}

// Req: LP-17
func TestPartialMessage_JoinsModelReplies(t *testing.T) {
	reply := func(author, text string) execution.Entry {
		return execution.Entry{Phase: execution.Done, Reply: conversation.Assistant(author, text)}
	}
	tool := execution.Entry{Phase: execution.Done, Tool: "read", Text: "not said"}
	said, ok := PartialMessage([]execution.Entry{reply("one", "Hello."), tool, reply("two", "I look."), reply("three", "")})
	require.True(t, ok)
	require.Equal(t, conversation.Message{Role: conversation.RoleAssistant, Author: "two", Text: "Hello.\n\nI look.", Partial: true}, said)
	for _, none := range [][]execution.Entry{nil, {tool}, {reply("one", "")}} {
		_, ok := PartialMessage(none)
		require.False(t, ok)
	}
	said, _ = PartialMessage([]execution.Entry{reply("one", strings.Repeat("ä", conversation.MaxMessageBytes))})
	require.Equal(t, strings.Repeat("ä", conversation.MaxMessageBytes/2), said.Text)
}
