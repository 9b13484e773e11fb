package extractive_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/extractive"
)

// found is a search result with three passages, of which the last is about another subject.
const found = `docs/tiers.md:10
| Tier | The only writer | Agents may |
|---|---|---|
| AGENT | that worker | read and write their own |
| MEMORY | memory service | read; ask for updates |

docs/life.md:3
A worker may die at any
instruction. No agent can write state that is
not its own. Nobody else cares.

docs/food.md:1
Bread is baked in an oven.`

var findSearchTool = llm.ToolSpec{
	Name:   "search_documents",
	Schema: json.RawMessage(`{"type": "object", "properties": {"query": {"type": "string"}}}`),
}

type answer struct {
	text   string
	deltas int
	calls  []conversation.ToolCall
	input  int64
	output int64
}

func generate(t *testing.T, req llm.Request) answer {
	t.Helper()
	var a answer
	for delta, err := range extractive.New().Generate(t.Context(), req) {
		require.NoError(t, err)
		a.text += delta.Text
		a.calls = append(a.calls, delta.ToolCalls...)
		a.input += delta.Usage.InputTokens
		a.output += delta.Usage.OutputTokens
		a.deltas++
	}
	return a
}

func newRequest(texts ...conversation.Message) llm.Request { return llm.Request{Messages: texts} }

func TestProvider_OpensOnlyKnownModels(t *testing.T) {
	catalog, err := llm.NewCatalog(extractive.Provider())
	require.NoError(t, err)
	model, err := catalog.Model("builtin/extractive")
	require.NoError(t, err)
	require.Equal(t, "builtin/extractive", model.Name())

	_, err = catalog.Model("builtin/gpt")
	require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
	require.ErrorContains(t, err, "there is builtin/extractive")
}

func TestModel_AsksBackOnlyWhenTheQuestionIsVague(t *testing.T) {
	for question, want := range map[string]string{
		"Tell me about it":         "Clarification",
		"help":                     "Clarification",
		"what?":                    "Clarification",
		"":                         "Clarification",
		"And what about those?":    "Clarification",
		"What may an agent write?": "research",
		"Redis?":                   "research",
	} {
		req := newRequest(conversation.User(question))
		req.Choices = []string{"Clarification", "research", "other"}
		require.Equal(t, want, generate(t, req).text, question)
	}
	req := newRequest(conversation.User("help"))
	req.Choices = []string{"a", "b"}
	require.Equal(t, "a", generate(t, req).text, "no choice asks back")
}

func TestModel_SearchesForTheWordsOfTheQuestion(t *testing.T) {
	req := newRequest(conversation.User("What may an agent write, and may an agent read?"))
	req.Tools = []llm.ToolSpec{{Name: "clock", Schema: json.RawMessage(`{"type": "object"}`)}, findSearchTool}
	got := generate(t, req)
	require.Empty(t, got.text)
	require.Len(t, got.calls, 1)
	require.Equal(t, "search_documents", got.calls[0].Name)
	require.JSONEq(t, `{"query": "agent write read"}`, got.calls[0].Arguments)
	require.Positive(t, got.input)
	require.Positive(t, got.output)
}

func TestModel_CombinesQuestionAndClarification(t *testing.T) {
	req := newRequest(
		conversation.User("Old question about bread"),
		conversation.Assistant("synthesis", "Bread is baked."),
		conversation.User("Who owns it?"),
		conversation.Assistant("clarification", "What do you mean by it?"),
		conversation.User("the memory tier"),
	)
	req.Tools = []llm.ToolSpec{findSearchTool}
	require.JSONEq(t, `{"query": "owns memory tier"}`, generate(t, req).calls[0].Arguments)
}

func TestModel_QuotesMatchingPassagesWithTheirPlace(t *testing.T) {
	req := newRequest(
		conversation.User("What may an agent write?"),
		conversation.Message{Role: conversation.RoleAssistant, ToolCalls: []conversation.ToolCall{{ID: "1", Name: "search_documents"}}},
		conversation.Message{Role: conversation.RoleTool, ToolCallID: "1", Text: found},
	)
	req.Tools = []llm.ToolSpec{findSearchTool}
	got := generate(t, req)
	require.Empty(t, got.calls)
	require.Contains(t, got.text, "“No agent can write state that is not its own.” (docs/life.md:4)")
	require.Contains(t, got.text, "“Tier: AGENT; The only writer: that worker; Agents may: read and write their own” (docs/tiers.md:12)")
	require.NotContains(t, got.text, "Bread")
	require.NotContains(t, got.text, "cares")
	require.NotContains(t, got.text, "Sources:", "an answer on the way lists none")
	require.True(t, strings.HasSuffix(got.text, extractive.Disclaimer))
	require.Greater(t, got.deltas, 5, "it streams")
}

func TestModel_ListsSourcesInAFinalAnswer(t *testing.T) {
	got := generate(t, newRequest(
		conversation.User("What may an agent write?"),
		conversation.Message{Role: conversation.RoleUser, Author: "research", Text: "What the steps before this one observed:\n\n" +
			"Used tool: search_documents\n" + found + "\n\nWhat research said:\n\nAn agent may write a poem."},
	))
	require.Contains(t, got.text, "\nSources:\n")
	require.Contains(t, got.text, "\ndocs/life.md:4\n")
	require.NotContains(t, got.text, "poem", "what was found counts, not what was said about it")
}

func TestModel_QuotesWithoutPlacesWhenThereAreNone(t *testing.T) {
	got := generate(t, newRequest(
		conversation.User("How warm is Oslo?"),
		conversation.Message{
			Role: conversation.RoleUser, Author: "weather",
			Text: "What the steps before this one observed:\n\nUsed tool: weather\nOslo is warm today.",
		},
	))
	require.Contains(t, got.text, "“Oslo is warm today.”")
	require.NotContains(t, got.text, "Sources:")
}

func TestModel_ReportsThatNoPassageMatches(t *testing.T) {
	for name, text := range map[string]string{"no passage": "(no output)", "others": found} {
		t.Run(name, func(t *testing.T) {
			got := generate(t, newRequest(
				conversation.User("What is the capital of France?"),
				conversation.Message{Role: conversation.RoleTool, ToolCallID: "1", Text: text},
			))
			require.Equal(t, "I found nothing on that in what I could read.\n\n"+extractive.Disclaimer, got.text)
		})
	}
}

// Req: RA-13
func TestModel_AsksForClarificationOfAVagueQuestion(t *testing.T) {
	got := generate(t, newRequest(conversation.User("Tell me about it")))
	require.Equal(t, "You wrote “Tell me about it”. What exactly would you like to know, and about which part?", got.text)
	require.True(t, strings.HasSuffix(generate(t, newRequest()).text, "?"))
}

func TestModel_StopsWhenItsContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range extractive.New().Generate(ctx, newRequest(conversation.User("Tell me about it"))) {
		cancel()
		last = err
	}
	require.ErrorIs(t, last, context.Canceled)
}

func TestModel_IsDeterministic(t *testing.T) {
	req := newRequest(conversation.User("What may an agent write?"), conversation.Message{Role: conversation.RoleTool, Text: found})
	first := generate(t, req)
	for range 20 {
		require.Equal(t, first, generate(t, req))
	}
}
