// Package extractive provides a model that is no language model: it quotes. It is deterministic, needs no key and
// no network, and calls tools as a real model does. So you can try, test and measure a mesh with nothing else
// installed. It does not understand what it quotes, and its answers say so in their last line.
//
// Its reply depends only on the request:
// - With Choices, it names the one for asking back if the question is vague, otherwise the first other one.
// - If a tool can search (its schema has a string property "query") and nothing was found yet, it calls the tool
// with the content words of the question.
// - If there are tool results, findings of other agents, or texts with the question, it quotes what fits the
// question best, with file and line.
// - Otherwise it asks what you mean.
package extractive

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// Name is the full name of the model. Disclaimer is the last line of every answer that may quote documents.
const (
	Name       = "builtin/extractive"
	Disclaimer = "(builtin/extractive: quoted from the documents, no language model involved)"
)

// wordsPerDelta is the number of words in each text delta.
const wordsPerDelta = 4

// Provider returns the provider of "builtin/" models. This package's model is the only one.
func Provider() llm.Provider {
	return llm.Provider{Prefix: "builtin", Open: func(name string) (llm.Model, error) {
		if name != Name {
			return nil, failure.Newf(failure.UserInvalidInput, "extractive.Open",
				"model %q: there is no such builtin model; there is %s", name, Name)
		}
		return New(), nil
	}}
}

// New returns the model.
func New() llm.Model { return model{} }

type model struct{}

func (model) Name() string { return Name }

// Generate implements llm.Model. The usage that it reports is an estimate of one token for every four characters.
func (model) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		text, calls := reply(req)
		for _, piece := range splitIntoDeltas(text) {
			if err := ctx.Err(); err != nil {
				yield(llm.Delta{}, err)
				return
			}
			if !yield(llm.Delta{Text: piece}, nil) {
				return
			}
		}
		finish := llm.FinishStop
		if len(calls) > 0 {
			finish = llm.FinishCalls
		}
		yield(llm.Delta{ToolCalls: calls, Usage: estimateUsage(req, text, calls), Finish: finish}, nil)
	}
}

// reply returns the whole answer: either a text or tool calls.
func reply(req llm.Request) (string, []conversation.ToolCall) {
	question, since := findQuestion(req.Messages)
	if len(req.Choices) > 0 {
		return chooseWord(req.Choices, question), nil
	}
	found, told := collectPassages(since)
	if tool, ok := findSearchTool(req.Tools); ok && !told {
		return "", []conversation.ToolCall{newSearchCall(tool, question)}
	}
	if !told {
		return clarifyingQuestion(question), nil
	}
	return composeAnswer(question, found, len(req.Tools) == 0), nil
}

// chooseWord returns the choice for asking back if the question is vague, and otherwise the first other choice.
func chooseWord(choices []string, question string) string {
	asksBack := func(choice string) bool { return strings.Contains(strings.ToLower(choice), "clarif") }
	for _, choice := range choices {
		if asksBack(choice) == isVague(question) {
			return choice
		}
	}
	return choices[0]
}

// clarifyingQuestion returns the question that the model asks the user when there is nothing to quote.
func clarifyingQuestion(question string) string {
	const ask = "What exactly would you like to know, and about which part?"
	if said := strings.Join(strings.Fields(question), " "); said != "" {
		return "You wrote “" + conversation.Excerpt(said, 200) + "”. " + ask
	}
	return ask
}

// findSearchTool returns the first tool that has a string parameter named query.
func findSearchTool(tools []llm.ToolSpec) (string, bool) {
	i := slices.IndexFunc(tools, func(t llm.ToolSpec) bool {
		var schema struct {
			Properties map[string]struct {
				Type string `json:"type"`
			} `json:"properties"`
		}
		return json.Unmarshal(t.Schema, &schema) == nil && schema.Properties["query"].Type == "string"
	})
	if i < 0 {
		return "", false
	}
	return tools[i].Name, true
}

// newSearchCall returns a call of the search tool with the content words of the question. If it has none, the
// whole question is the query.
func newSearchCall(tool, question string) conversation.ToolCall {
	query := strings.Join(contentWords(question), " ")
	if query == "" {
		query = question
	}
	arguments, _ := json.Marshal(map[string]string{"query": query}) // strings always marshal
	return conversation.ToolCall{ID: "search_1", Name: tool, Arguments: string(arguments)}
}

// splitIntoDeltas splits a text into groups of words and keeps all white space.
func splitIntoDeltas(text string) []string {
	var all []string
	start, words, space := 0, 0, false
	for i, r := range text {
		blank := r == ' ' || r == '\n'
		if space && !blank {
			if words++; words == wordsPerDelta {
				all = append(all, text[start:i])
				start, words = i, 0
			}
		}
		space = blank
	}
	if start < len(text) {
		all = append(all, text[start:])
	}
	return all
}

func estimateUsage(req llm.Request, text string, calls []conversation.ToolCall) execution.Usage {
	in, out := utf8.RuneCountInString(req.System), utf8.RuneCountInString(text)
	for _, m := range req.Messages {
		in += utf8.RuneCountInString(m.Text)
	}
	for _, t := range req.Tools {
		in += utf8.RuneCountInString(t.Name+t.Description) + len(t.Schema)
	}
	for _, c := range calls {
		out += utf8.RuneCountInString(c.Name + c.Arguments)
	}
	return execution.Usage{InputTokens: estimateTokens(in), OutputTokens: estimateTokens(out)}
}

func estimateTokens(characters int) int64 { return int64((characters + 3) / 4) }
