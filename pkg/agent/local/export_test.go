package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/openaitest"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/tool"
)

func exportTests() sessionTests {
	return sessionTests{
		"Export_IsAcceptedByAServer": exportIsAcceptedByAServer,
		"Export_IsWhole":             exportIsWhole,
		"Export_IncludesUnsaved":     exportIncludesUnsaved,
	}
}

func export(t *testing.T, s *local.Session) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, s.ExportOpenAI(t.Context(), &b))
	require.NoError(t, openaitest.CheckMessages(b.Bytes()), "%s", &b)
	return b.String()
}

// sendToServer sends messages to a Chat Completions server and returns the request as the server reads it.
func sendToServer(t *testing.T, messages string) llmtest.DecodedRequest {
	t.Helper()
	server := llmtest.NewServer(t, openaitest.Wire{}, llmtest.RepliesInOrder(llmtest.Reply{Texts: []string{"ok"}}))
	body := fmt.Sprintf(`{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":%s}`, messages)
	resp, err := http.Post(server.URL+"/chat/completions", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	return server.Requests()[0]
}

// The session has tool rounds, a summary, a tool that does not exist, and a turn that failed.
//
// Req: CO-69
func exportIsAcceptedByAServer(t *testing.T, store memory.Store) {
	call := func(name string) scripted.Reply {
		return scripted.Call(conversation.ToolCall{Name: name, Arguments: `{"query":"oslo"}`})
	}
	a, _ := scriptedAgent(t, agent.Config{Instructions: "Be brief.", Tools: []tool.Tool{lookup(t)}},
		scripted.Say("Hi."), lookupReply("oslo", "error"), scripted.Say("Sunny."), call("läute.an"), scripted.Say("No such bell."),
		lookupReply("bergen"), scripted.Fail(failure.New(failure.ResourceAPI, "test", "down")), scripted.Say("Seen."))
	s := openSession(t, a, local.Config{Store: store})
	for _, text := range []string{"Hello", "Oslo?", "Ring!"} {
		_, err := s.Ask(t.Context(), text)
		require.NoError(t, err)
	}
	_, err := s.Ask(t.Context(), "Bergen?")
	require.Error(t, err)
	_, err = s.Ask(t.Context(), "Look")
	require.NoError(t, err)
	_, err = s.Compact(t.Context(), 7, "They said hello.")
	require.NoError(t, err)

	asked := sendToServer(t, export(t, s))
	require.Equal(t, "Be brief.", asked.System)
	require.Equal(t, []string{
		"user: They said hello.", "user: Oslo?", "ai:  lookup lookup", "tool: found oslo", "tool: Error: down", "ai: Sunny.",
		"user: Ring!", "ai:  l_ute_an", `tool: There is no tool "läute.an"; there are lookup.`, "ai: No such bell.",
		"user: Bergen?", "ai:  lookup", "tool: found bergen",
		"user: Look", "ai: Seen.",
	}, exportedTranscript(asked.Messages))
}

// exportedTranscript returns the messages as lines, with the names of the tools that they call.
func exportedTranscript(messages []conversation.Message) []string {
	var lines []string
	for _, m := range messages {
		role := map[conversation.Role]string{conversation.RoleAssistant: "ai"}[m.Role]
		if role == "" {
			role = string(m.Role)
		}
		line := role + ": " + m.Text
		for _, c := range m.ToolCalls {
			line += " " + c.Name
		}
		lines = append(lines, line)
	}
	return lines
}

// An export has more tool results than one page of the store, and than any model reads.
//
// Req: CO-69
func exportIsWhole(t *testing.T, store memory.Store) {
	const turns, size = 6, 230 << 10
	long, err := tool.Func("read", "Reads.", func(context.Context, struct{}) (string, error) { return strings.Repeat("a", size), nil })
	require.NoError(t, err)
	read := conversation.ToolCall{Name: "read", Arguments: "{}"}
	var replies []scripted.Reply
	for n := range turns {
		replies = append(replies, scripted.Call(read, read, read), scripted.Say(fmt.Sprint(n)))
	}
	a, _ := scriptedAgent(t, agent.Config{Tools: []tool.Tool{long}}, replies...)
	s := openSession(t, a, local.Config{Store: store})
	for range turns {
		_, err := s.Ask(t.Context(), "Read")
		require.NoError(t, err)
	}
	text := export(t, s)
	var messages []map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &messages))
	results := 0
	for _, m := range messages {
		if m["role"] == "tool" {
			require.Len(t, m["content"], size)
			results++
		}
	}
	require.Equal(t, 3*turns, results)
	require.Greater(t, results*size, memory.MaxWindowBytes)
	require.Len(t, messages, 1+turns*(1+1+3+1))
}

// Turns that are not saved are exported as if they were.
func exportIncludesUnsaved(t *testing.T, store memory.Store) {
	var exports []string
	for _, unsaved := range []bool{true, false} {
		a, _ := scriptedAgent(t, agent.Config{Tools: []tool.Tool{lookup(t)}}, lookupReply("oslo"), scripted.Say("Sunny."))
		s := openSession(t, a, local.Config{Store: store, NoAutoSave: unsaved})
		_, err := s.Ask(t.Context(), "Oslo?")
		require.NoError(t, err)
		exports = append(exports, export(t, s))
	}
	require.Empty(t, cmp.Diff(exports[1], exports[0]))
}

// A call that waits is in the export once it has its answer.
//
// Req: CO-69
func TestExport_OfACallThatWaits(t *testing.T) {
	_, s, _, _ := openGuarded(t, nil, agent.Config{Instructions: "Be brief."}, lookupReply("oslo"), scripted.Say("Sunny."))
	_, err := s.Ask(t.Context(), "Oslo?")
	require.NoError(t, err)
	require.NotContains(t, export(t, s), "tool_calls")
	_, err = s.Execute(t.Context(), answerTo(s.Pending()[0], execution.Approve, ""), nil)
	require.NoError(t, err)
	exported := exportedTranscript(sendToServer(t, export(t, s)).Messages)
	require.Equal(t, []string{"ai:  lookup", "tool: found oslo", "ai: Sunny."}, exported[len(exported)-3:])
}
