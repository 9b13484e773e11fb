package anthropic_test

import (
	"testing"

	"github.com/troupe-dev/troupe/internal/llmreplay"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/anthropic"
	"github.com/troupe-dev/troupe/pkg/secret"
)

func FuzzStream(f *testing.F) {
	llmreplay.Fuzz(f, "testdata/*.sse", func(baseURL string) (llm.Model, error) {
		return anthropic.New("anthropic/claude-sonnet-5", anthropic.Config{Key: secret.New("key"), BaseURL: baseURL, Retry: llm.Retry{Limit: -1}})
	})
}
