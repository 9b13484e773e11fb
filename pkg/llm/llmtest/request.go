package llmtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/llmreplay"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// requestTests tests the requests that the adapter sends.
var requestTests = []suiteTest{
	{"NamesTheModelAndHasTheKey", testModelAndKey},
	{"HasTheSystemPromptAndTheMessagesInOrder", testMessages},
	{"HasTheToolsWithTheirSchemas", testTools},
	{"HasToolCallsAndResults", testToolResults},
	{"HasTheExtraOfCalls", testExtra},
	{"HasTheThoughtsOfCalls", testReturnedThoughts},
	{"OmitsTheExtraOfOtherProviders", testForeignExtra},
	{"OmitsEmptyMessages", testEmptyMessages},
	{"HasSummariesAndNotes", testSummariesAndNotes},
	{"NamesTheChoices", testChoices},
	{"HasTheTemperatureOnlyIfThereIsOne", testTemperature},
	{"KeepsNoStateBetweenCalls", testConcurrentRequests},
	{"ShowsAttachments", testAttachments},
	{"ShowsTheFilesOfToolResults", testResultFiles},
	{"FollowsNoRedirect", testRedirect},
}

func testModelAndKey(rig *testbed) {
	m := rig.open(llm.Timeouts{}, respond(Reply{Texts: []string{"hi"}}))
	require.Equal(rig, rig.Name+"/"+modelName, m.Name())
	require.NoError(rig, rig.askHello(m).Err)
	asked, _ := rig.requests()
	require.Len(rig, asked, 1)
	require.Equal(rig, modelName, asked[0].Model)
	require.Equal(rig, key, asked[0].Key)
}

func testMessages(rig *testbed) {
	m := rig.open(llm.Timeouts{}, respond(Reply{Texts: []string{"hi"}}))
	const quoted = "Zürich \"1\" <b> & \u2028 🎭\n\ttwo"
	messages := []conversation.Message{
		conversation.User("one"), conversation.Assistant("helper", quoted), conversation.User("three"),
	}
	require.NoError(rig, rig.ask(rig.Context(), m, llm.Request{System: "Be kind.\nAlways: " + quoted, Messages: messages}, nil).Err)
	asked, _ := rig.requests()
	require.Equal(rig, "Be kind.\nAlways: "+quoted, asked[0].System)
	messages[1].Author = ""
	require.Empty(rig, cmp.Diff(messages, asked[0].Messages))
	require.Empty(rig, asked[0].Tools)
}

func testTools(rig *testbed) {
	m := rig.open(llm.Timeouts{}, respond(Reply{Texts: []string{"hi"}}))
	tools := []llm.ToolSpec{
		{
			Name: "search_documents", Description: "Searches.",
			Schema: json.RawMessage(`{"type":"object","properties":` +
				`{"query":{"type":"string","description":"what to find"},"limit":{"type":"integer"}},"required":["query"]}`),
		},
		{Name: "current_time", Description: "Tells the time.", Schema: json.RawMessage(`{"type":"object","properties":{}}`)},
	}
	req := hello
	req.Tools = tools
	require.NoError(rig, rig.ask(rig.Context(), m, req, nil).Err)
	asked, _ := rig.requests()
	require.Len(rig, asked[0].Tools, len(tools))
	for i, tool := range asked[0].Tools {
		require.Equal(rig, tools[i].Name, tool.Name)
		require.Equal(rig, tools[i].Description, tool.Description)
		require.JSONEq(rig, string(tools[i].Schema), string(tool.Schema))
	}
}

func testToolResults(rig *testbed) {
	m := rig.open(llm.Timeouts{}, respond(Reply{Texts: []string{"hi"}}))
	messages := []conversation.Message{
		conversation.User("compare"),
		{Role: conversation.RoleAssistant, Text: "I look.", ToolCalls: []conversation.ToolCall{
			{ID: "call_a", Name: "look", Arguments: `{"at":"grün","n":[1,2.5]}`},
			{ID: "call_b", Name: "look", Arguments: `{}`},
		}},
		{Role: conversation.RoleTool, ToolCallID: "call_a", Text: "a \"green\" thing"},
		{Role: conversation.RoleTool, ToolCallID: "call_b", Text: `{"error":"nothing there"}`},
		{Role: conversation.RoleAssistant, ToolCalls: []conversation.ToolCall{{ID: "call_c", Name: "count", Arguments: `{"n":3}`}}},
		{Role: conversation.RoleTool, ToolCallID: "call_c", Text: ""},
		conversation.User("and?"),
	}
	req := llm.Request{Messages: messages, Tools: []llm.ToolSpec{
		{Name: "look", Schema: json.RawMessage(`{"type":"object"}`)}, {Name: "count", Schema: json.RawMessage(`{"type":"object"}`)},
	}}
	require.NoError(rig, rig.ask(rig.Context(), m, req, nil).Err)
	asked, bodies := rig.requests()
	require.Len(rig, asked[0].Messages, len(messages), "%s", bodies[0])
	for i, got := range asked[0].Messages {
		want := messages[i]
		require.Equal(rig, want.Role, got.Role, "message %d", i)
		require.Equal(rig, want.Text, got.Text, "message %d", i)
		if !rig.NoCallIDs {
			require.Equal(rig, want.ToolCallID, got.ToolCallID, "message %d", i)
		}
		rig.requireSameCalls(want.ToolCalls, got.ToolCalls)
	}
}

// requireSameCalls checks that two lists of calls are equal. It compares their arguments as JSON.
func (t *testbed) requireSameCalls(want, got []conversation.ToolCall) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i].Name, got[i].Name)
		require.JSONEq(t, want[i].Arguments, got[i].Arguments)
		if !t.NoCallIDs {
			require.Equal(t, want[i].ID, got[i].ID)
		}
	}
}

func testExtra(rig *testbed) {
	if rig.NoExtra {
		return
	}
	const extra = "c2lnbmVkIHRob3VnaHQ="
	m := rig.open(llm.Timeouts{},
		respond(Reply{Calls: []Call{{ID: "a", Name: "look", ArgumentParts: []string{`{"at":1}`}, Extra: extra}}}), respond(Reply{Texts: []string{"hi"}}))
	first := rig.askHello(m)
	require.NoError(rig, first.Err)
	require.Len(rig, first.Calls, 1)
	require.NotEmpty(rig, first.Calls[0].Extra)
	req := hello
	req.Messages = append(req.Messages[:1:1],
		conversation.Message{Role: conversation.RoleAssistant, ToolCalls: first.Calls},
		conversation.Message{Role: conversation.RoleTool, ToolCallID: first.Calls[0].ID, Text: "seen"})
	require.NoError(rig, rig.ask(rig.Context(), m, req, nil).Err)
	asked, _ := rig.requests()
	require.Len(rig, asked[1].Messages, 3)
	require.Equal(rig, extra, asked[1].Messages[1].ToolCalls[0].Extra)
}

// testReturnedThoughts checks that the thoughts that led to a call are in the requests after it: in the next round,
// and in the next turn, when the conversation has also calls without thoughts.
func testReturnedThoughts(rig *testbed) {
	if rig.NoThoughts {
		return
	}
	call := func(id string) []Call {
		return []Call{{ID: id, Name: "look", ArgumentParts: []string{`{}`}}}
	}
	m := rig.open(llm.Timeouts{}, respond(Reply{Thoughts: []string{"I need ", "to look."}, Calls: append(call("a"), call("b")...)}),
		respond(Reply{Calls: call("c")}), respond(Reply{Texts: []string{"hi"}}))
	req := llm.Request{Messages: hello.Messages, Tools: []llm.ToolSpec{{Name: "look"}}}
	for range 2 {
		said := rig.ask(rig.Context(), m, req, nil)
		require.NoError(rig, said.Err)
		req.Messages = append(slices.Clip(req.Messages),
			conversation.Message{Role: conversation.RoleAssistant, Text: "I look.", ToolCalls: said.Calls})
		for _, c := range said.Calls {
			req.Messages = append(req.Messages, conversation.Message{Role: conversation.RoleTool, ToolCallID: c.ID, Text: "seen"})
		}
	}
	req.Messages = append(req.Messages, conversation.Assistant("helper", "It is foggy."), conversation.User("And now?"))
	require.NoError(rig, rig.ask(rig.Context(), m, req, nil).Err)
	asked, bodies := rig.requests()
	require.Equal(rig, map[int]string{1: "I need to look."}, asked[1].Thoughts, "%s", bodies[1])
	require.Equal(rig, map[int]string{1: "I need to look."}, asked[2].Thoughts, "%s", bodies[2])
	require.Equal(rig, "I look.", asked[2].Messages[1].Text)
}

// testForeignExtra checks that the adapter does not send what another provider wants back.
func testForeignExtra(rig *testbed) {
	m := rig.open(llm.Timeouts{}, respond(Reply{Texts: []string{"hi"}}))
	req := llm.Request{Messages: hello.Messages, Tools: []llm.ToolSpec{{Name: "look"}}}
	for i, extra := range []string{
		`anthropic:[{"text":"foreign","signature":"foreign"}]`, `gemini:{"id":"foreign","signature":"Zm9yZWlnbg=="}`, `{"foreign":true}`,
		`openai:{"server":"another","form":"reasoning_content","text":"foreign"}`, "foreign", "anthropic:foreign", "gemini:foreign", "openai:foreign",
	} {
		if strings.HasPrefix(extra, rig.Name+":[") || strings.HasPrefix(extra, rig.Name+`:{"id"`) {
			continue // its own
		}
		id := fmt.Sprintf("call_%d", i)
		req.Messages = append(req.Messages,
			conversation.Message{Role: conversation.RoleAssistant, ToolCalls: []conversation.ToolCall{{ID: id, Name: "look", Arguments: "{}", Extra: extra}}},
			conversation.Message{Role: conversation.RoleTool, ToolCallID: id, Text: "seen"})
	}
	require.NoError(rig, rig.ask(rig.Context(), m, req, nil).Err)
	asked, bodies := rig.requests()
	require.Empty(rig, asked[0].Thoughts)
	require.NotContains(rig, bodies[0], "foreign")
	require.NotContains(rig, bodies[0], "Zm9yZWlnbg")
}

func testEmptyMessages(rig *testbed) {
	m := rig.open(llm.Timeouts{}, respond(Reply{Texts: []string{"hi"}}))
	req := llm.Request{Messages: []conversation.Message{
		conversation.User("one"), conversation.Assistant("helper", ""), conversation.User("two"),
	}}
	require.NoError(rig, rig.ask(rig.Context(), m, req, nil).Err)
	asked, _ := rig.requests()
	var texts []string
	for _, m := range asked[0].Messages {
		require.Equal(rig, conversation.RoleUser, m.Role)
		require.NotEmpty(rig, m.Text)
		texts = append(texts, strings.Fields(m.Text)...)
	}
	require.Equal(rig, []string{"one", "two"}, texts)
}

func testSummariesAndNotes(rig *testbed) {
	m := rig.open(llm.Timeouts{}, respond(Reply{Texts: []string{"hi"}}))
	req := llm.Request{System: "Be kind.", Messages: []conversation.Message{
		{Role: conversation.RoleSummary, Text: "the gist of before"},
		conversation.User("go on"),
		{Role: conversation.RoleSystem, Text: "a note on the way"},
		{Role: conversation.RoleUser, Author: "research", Text: "what research found"},
	}}
	require.NoError(rig, rig.ask(rig.Context(), m, req, nil).Err)
	_, bodies := rig.requests()
	for _, text := range []string{"Be kind.", "the gist of before", "go on", "a note on the way", "what research found"} {
		require.Contains(rig, bodies[0], text)
	}
}

func testChoices(rig *testbed) {
	m := rig.open(llm.Timeouts{}, respond(Reply{Texts: []string{"rese", "arch"}}))
	req := hello
	req.System, req.Choices = "Decide.", []string{"research", "critical-review", "ask-user"}
	all := rig.ask(rig.Context(), m, req, nil)
	require.NoError(rig, all.Err)
	require.Equal(rig, "research", all.Text())
	asked, bodies := rig.requests()
	require.Contains(rig, asked[0].System, "Decide.")
	for _, choice := range req.Choices {
		require.Contains(rig, bodies[0], choice)
	}
}

func testTemperature(rig *testbed) {
	m := rig.open(llm.Timeouts{}, respond(Reply{Texts: []string{"hi"}}))
	require.NoError(rig, rig.askHello(m).Err)
	req, exact := hello, 0.25
	req.Temperature = &exact
	require.NoError(rig, rig.ask(rig.Context(), m, req, nil).Err)
	_, bodies := rig.requests()
	require.NotContains(rig, bodies[0], `"temperature"`)
	require.Contains(rig, bodies[1], `"temperature":0.25`)
}

// testConcurrentRequests checks that a model keeps no state between calls: many goroutines use it at once, and
// each gets its own answer.
func testConcurrentRequests(rig *testbed) {
	m := rig.open(llm.Timeouts{}, func(rig *testbed, w *llmreplay.Writer, _ *http.Request) {
		asked, _ := rig.requests() // includes this request; every answer contains the texts of all requests
		var all []string
		for _, a := range asked {
			all = append(all, a.Messages[0].Text)
		}
		w.SendEvents(allEvents(rig.Wire.Stream(Reply{Texts: all}))...)
	})
	var group sync.WaitGroup
	for n := range 16 {
		group.Go(func() {
			own := strings.Repeat("x", n+1) + "."
			req := llm.Request{Messages: []conversation.Message{conversation.User(own)}}
			if all := Ask(rig.Context(), m, req); all.Err != nil || !strings.Contains("."+all.Text(), "."+own) {
				rig.Errorf("request %d failed, or got the answer to another one: %q, %v", n, all.Text(), all.Err)
			}
		})
	}
	group.Wait()
}

func testRedirect(rig *testbed) {
	var reached atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer other.Close()
	m := rig.open(llm.Timeouts{}, func(_ *testbed, w *llmreplay.Writer, r *http.Request) {
		w.Header().Set("Location", other.URL+r.URL.Path)
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	require.Error(rig, rig.askHello(m).Err)
	require.False(rig, reached.Load(), "the key was sent to another address")
}
