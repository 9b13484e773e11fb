package chatformat_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/internal/chatformat"
	"github.com/troupe-dev/troupe/internal/openaitest"
	"github.com/troupe-dev/troupe/pkg/conversation"
)

func export(t require.TestingT, system, agent string, messages ...conversation.Message) string {
	var b bytes.Buffer
	require.NoError(t, chatformat.Write(&b, chatformat.Export(system, agent, messages)))
	return b.String()
}

func calling(agent, text string, calls ...conversation.ToolCall) conversation.Message {
	m := conversation.Assistant(agent, text)
	m.ToolCalls = calls
	return m
}

// Req: CO-69
func TestExport_EachKindOfMessage(t *testing.T) {
	look := conversation.ToolCall{ID: "c1", Name: "look", Arguments: `{"at":"<it>"}`, Extra: "opaque"}
	result := conversation.Message{Role: conversation.RoleTool, ToolCallID: "c1", Text: "seen", Untrusted: "tool look"}
	withFile := conversation.User("Read this")
	withFile.Attachments = []conversation.Attachment{{Name: "a.png", MediaType: "image/png", Size: 2048, Version: 1, Data: []byte("bytes")}}
	partial := conversation.Assistant("clerk", "half")
	partial.Partial = true
	for name, c := range map[string]struct {
		messages []conversation.Message
		want     string
	}{
		"the system prompt first": {[]conversation.Message{conversation.User("Hello")}, `{"role":"user","content":"Hello"}`},
		"a call and its result": {
			[]conversation.Message{calling("clerk", "", look), result},
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{\"at\":\"<it>\"}"}}]},
{"role":"tool","content":"seen","tool_call_id":"c1"}`,
		},
		"a call with text, without arguments": {
			[]conversation.Message{calling("clerk", "One moment.", conversation.ToolCall{ID: "c1", Name: "look"}), result},
			`{"role":"assistant","content":"One moment.","tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{}"}}]},
{"role":"tool","content":"seen","tool_call_id":"c1"}`,
		},
		"an empty result": {
			[]conversation.Message{calling("clerk", "", look), {Role: conversation.RoleTool, ToolCallID: "c1"}},
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{\"at\":\"<it>\"}"}}]},
{"role":"tool","content":"","tool_call_id":"c1"}`,
		},
		"a call that waits": {
			[]conversation.Message{calling("clerk", "", look)},
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{\"at\":\"<it>\"}"}}]},
{"role":"tool","content":"Interrupted: the turn ended before the tool had a result.","tool_call_id":"c1"}`,
		},
		"a result without a call": {[]conversation.Message{result, conversation.User("x")}, `{"role":"user","content":"x"}`},
		"a name that no tool can have": {
			[]conversation.Message{calling("clerk", "", conversation.ToolCall{ID: "c1", Name: "läute an/" + strings.Repeat("x", 70)}), result},
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"l_ute_an_` + strings.Repeat("x", 55) + `","arguments":"{}"}}]},
{"role":"tool","content":"seen","tool_call_id":"c1"}`,
		},
		"a summary":                    {[]conversation.Message{{Role: conversation.RoleSummary, Text: "before"}}, `{"role":"user","content":"before"}`},
		"a file":                       {[]conversation.Message{withFile}, `{"role":"user","content":"Read this\n\n[attachment a.png, image/png, 2 KiB: not shown to this model]"}`},
		"another agent":                {[]conversation.Message{conversation.Assistant("synthesis", "Done.")}, `{"role":"assistant","name":"synthesis","content":"Done."}`},
		"an answer that broke off":     {[]conversation.Message{partial}, `{"role":"assistant","content":"half"}`},
		"a note of a handler":          {[]conversation.Message{{Role: conversation.RoleSystem, Text: "Be brief."}}, `{"role":"system","content":"Be brief."}`},
		"a note with untrusted text":   {[]conversation.Message{{Role: conversation.RoleSystem, Text: "x", Untrusted: "tool look"}}, `{"role":"user","content":"x"}`},
		"an empty message is left out": {[]conversation.Message{conversation.Assistant("clerk", ""), conversation.User("x")}, `{"role":"user","content":"x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := export(t, "Be kind.", "clerk", c.messages...)
			require.Empty(t, cmp.Diff("[\n{\"role\":\"system\",\"content\":\"Be kind.\"},\n"+c.want+"\n]\n", got))
			require.NoError(t, openaitest.CheckMessages([]byte(got)))
		})
	}
}

// Several agents share the conversation of a session, so each of their messages has a name, and there is no one prompt.
//
// Req: CO-69
func TestExport_SharedConversationNamesEachAgent(t *testing.T) {
	got := export(t, "", "", conversation.User("Hello"), conversation.Assistant("research", "Found."), conversation.Assistant("synthesis", "Done."))
	require.Equal(t, `[
{"role":"user","content":"Hello"},
{"role":"assistant","name":"research","content":"Found."},
{"role":"assistant","name":"synthesis","content":"Done."}
]
`, got)
	require.NoError(t, openaitest.CheckMessages([]byte(got)))
	require.Equal(t, "[\n]\n", export(t, "", ""))
}

func TestWrite_EscapesWhatIsNotPrintable(t *testing.T) {
	const text = "a\x1b[2J\u202e\u200d\U000e0041ä\U0001f600\n"
	got := export(t, "", "", conversation.User(text))
	require.Equal(t, `[
{"role":"user","content":"a\u001b[2J\u202e\u200d\udb40\udc41ä`+"\U0001f600"+`\n"}
]
`, got)
	var messages []chatformat.Message
	require.NoError(t, json.Unmarshal([]byte(got), &messages))
	require.Equal(t, text, *messages[0].Content)
}

// Whatever a conversation holds, the API accepts its export.
//
// Req: CO-69
func TestExport_IsAlwaysAccepted(t *testing.T) {
	roles := []conversation.Role{conversation.RoleSystem, conversation.RoleUser, conversation.RoleAssistant, conversation.RoleTool, conversation.RoleSummary}
	rapid.Check(t, func(t *rapid.T) {
		messages := []conversation.Message{conversation.User("begin")}
		for range rapid.IntRange(0, 8).Draw(t, "messages") {
			m := conversation.Message{
				Role: rapid.SampledFrom(roles).Draw(t, "role"), Text: rapid.SampledFrom([]string{"", "a", "\x1b[2J\xff"}).Draw(t, "text"),
				Author: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "author"), Untrusted: rapid.SampledFrom([]string{"", "tool a"}).Draw(t, "source"),
			}
			if m.Role == conversation.RoleAssistant {
				for range rapid.IntRange(0, 3).Draw(t, "calls") {
					m.ToolCalls = append(m.ToolCalls, conversation.ToolCall{
						ID: rapid.StringMatching(`[a-c]`).Draw(t, "id"), Name: rapid.String().Draw(t, "tool"), Arguments: rapid.String().Draw(t, "arguments"),
					})
				}
			}
			if m.Role == conversation.RoleTool {
				m.ToolCallID = rapid.StringMatching(`[a-c]`).Draw(t, "id")
			}
			messages = append(messages, m)
		}
		text := export(t, "Be kind.", "a", messages...)
		require.NoError(t, openaitest.CheckMessages([]byte(text)), "%s", text)
		require.True(t, json.Valid([]byte(text)))
		require.NotContains(t, text, "\x1b")
	})
}
