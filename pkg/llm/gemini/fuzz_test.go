package gemini_test

import (
	"testing"

	"github.com/troupe-dev/troupe/internal/llmreplay"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/gemini"
	"github.com/troupe-dev/troupe/pkg/secret"
)

func FuzzStream(f *testing.F) {
	llmreplay.Fuzz(f, "testdata/*.sse", func(baseURL string) (llm.Model, error) {
		return gemini.New("gemini/gemini-2.5-flash", gemini.Config{Key: secret.New("key"), BaseURL: baseURL, Retry: llm.Retry{Limit: -1}})
	})
}
