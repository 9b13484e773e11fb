package llmtest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// memoryTests tests what the provider gets from an agent that remembers its earlier turns.
var memoryTests = []suiteTest{
	{"KeepsToolRoundsOfEarlierTurns", testToolRoundsOfEarlierTurns},
}

// An agent opens a hit of the turn before without another search. Each request begins with the one before, so that the
// provider finds it in its cache.
//
// Req: LP-45
func testToolRoundsOfEarlierTurns(rig *testbed) {
	m := rig.open(llm.Timeouts{}, answerLikeASearcher)
	searches := 0
	search, err := tool.Func("search", "Searches.", func(context.Context, struct{}) (string, error) {
		searches++
		return "1: a.example\n2: b.example\n3: c.example", nil
	})
	require.NoError(rig, err)
	a, err := agent.New(agent.Config{Name: "searcher", Instructions: "Search.", Model: m, Tools: []tool.Tool{search}})
	require.NoError(rig, err)
	s, err := local.Open(rig.Context(), a, local.Config{Store: inmem.New(inmem.Config{})})
	require.NoError(rig, err)
	for _, turn := range [][2]string{{"Find it.", "I found three hits."}, {"Open the third hit.", "It is c.example."}, {"Thanks.", "It is c.example."}} {
		done, err := s.Execute(rig.Context(), local.Input{Text: turn[0]}, nil)
		require.NoError(rig, err)
		require.Equal(rig, turn[1], done.Result.Text)
	}
	require.NoError(rig, s.Close(rig.Context()))
	require.Equal(rig, 1, searches)

	_, bodies := rig.requests()
	require.Len(rig, bodies, 4)
	for i, body := range bodies[1:] {
		before, settingsBefore := splitBody(rig, bodies[i])
		after, settings := splitBody(rig, body)
		require.Equal(rig, settingsBefore, settings)
		require.Greater(rig, len(after), len(before))
		require.Equal(rig, before, after[:len(before)], "request %d begins with request %d", i+2, i+1)
	}
}

// answerLikeASearcher searches when it is asked to, and opens the third hit of an earlier search.
func answerLikeASearcher(rig *testbed, w *writer, r *http.Request) {
	asked, _ := rig.requests()
	messages := asked[len(asked)-1].Messages
	reply := Reply{Texts: []string{"I know of no hits."}}
	switch last := messages[len(messages)-1]; {
	case last.Role == conversation.RoleTool:
		reply.Texts[0] = "I found three hits."
	case strings.HasPrefix(last.Text, "Find"):
		reply = Reply{Calls: []Call{{ID: "call_1", Name: "search", ArgumentParts: []string{"{}"}}}}
	default:
		found := func(m conversation.Message) bool { return m.Role == conversation.RoleTool }
		if i := slices.IndexFunc(messages, found); i >= 0 {
			_, third, _ := strings.Cut(messages[i].Text, "3: ")
			reply.Texts[0] = "It is " + third + "."
		}
	}
	respond(reply)(rig, w, r)
}

// splitBody returns the messages of a request in the provider's format, and the rest of it. Marks that say what to cache
// are left out, because they move with the end of the conversation.
func splitBody(rig *testbed, body string) (messages []any, settings map[string]any) {
	rig.Helper()
	require.NoError(rig, json.Unmarshal([]byte(body), &settings))
	for _, field := range []string{"messages", "contents"} {
		if found, ok := settings[field].([]any); ok {
			messages = found
			delete(settings, field)
		}
	}
	removeField(messages, "cache_control")
	return messages, settings
}

// removeField removes a field from all objects in v.
func removeField(v any, name string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			removeField(e, name)
		}
	case map[string]any:
		delete(v, name)
		for _, e := range v {
			removeField(e, name)
		}
	}
}
