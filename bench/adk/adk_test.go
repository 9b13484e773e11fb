package adk_test

import (
	"context"
	"iter"
	"strconv"
	"testing"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"
)

// adkModel is a scripted model for ADK-Go.
type adkModel struct{ rounds, said int }

func (*adkModel) Name() string { return "scripted" }

func (m *adkModel) GenerateContent(context.Context, *model.LLMRequest, bool) iter.Seq2[*model.LLMResponse, error] {
	return func(yield func(*model.LLMResponse, error) bool) {
		m.said++
		part := &genai.Part{Text: answer}
		if m.said <= m.rounds {
			part = &genai.Part{FunctionCall: &genai.FunctionCall{
				ID: "call-" + strconv.Itoa(m.said), Name: "echo", Args: map[string]any{"word": word},
			}}
		}
		yield(&model.LLMResponse{
			Content:       &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{part}},
			UsageMetadata: &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 10, CandidatesTokenCount: 5},
		}, nil)
	}
}

type adkEchoResult struct {
	Word string `json:"word"`
}

// newADK returns a turn that runs an ADK-Go agent in a runner. Each turn has a new session in memory.
func newADK(b *testing.B, rounds int) turn {
	b.Helper()
	m := &adkModel{rounds: rounds}
	say, err := functiontool.New(functiontool.Config{Name: "echo", Description: "Says a word again."},
		func(_ agent.Context, in echo) (adkEchoResult, error) { return adkEchoResult(in), nil })
	if err != nil {
		b.Fatal(err)
	}
	a, err := llmagent.New(llmagent.Config{Name: "echo", Model: m, Instruction: instruction, Tools: []tool.Tool{say}})
	if err != nil {
		b.Fatal(err)
	}
	sessions := session.InMemoryService()
	r, err := runner.New(runner.Config{AppName: "bench", Agent: a, SessionService: sessions, AutoCreateSession: true})
	if err != nil {
		b.Fatal(err)
	}
	return func(ctx context.Context) (said string, _ error) {
		m.said = 0
		for e, err := range r.Run(ctx, "user", "session-1", genai.NewContentFromText(prompt, genai.RoleUser), agent.RunConfig{}) {
			if err != nil {
				return "", err
			}
			if e.IsFinalResponse() && e.Content != nil && len(e.Content.Parts) > 0 {
				said = e.Content.Parts[0].Text
			}
		}
		return said, sessions.Delete(ctx, &session.DeleteRequest{AppName: "bench", UserID: "user", SessionID: "session-1"})
	}
}
