package openai_test

import (
	"testing"

	"github.com/troupe-dev/troupe/internal/llmreplay"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/openai"
	"github.com/troupe-dev/troupe/pkg/secret"
)

func FuzzStream(f *testing.F) {
	llmreplay.Fuzz(f, "testdata/*.txt", func(baseURL string) (llm.Model, error) {
		return openai.New("openai/gpt-5", openai.Config{Key: secret.New("key"), BaseURL: baseURL, Retry: llm.Retry{Limit: -1}})
	})
}
