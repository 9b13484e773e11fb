package anthropic_test

import (
	"testing"

	"github.com/troupe-dev/troupe/internal/anthropictest"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/anthropic"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
	"github.com/troupe-dev/troupe/pkg/secret"
)

// Req: CO-11, CO-12, CO-13
func TestModel_PassesTheSuite(t *testing.T) {
	llmtest.Run(t, llmtest.Provider{
		Name: anthropic.Prefix,
		Wire: anthropictest.Wire{},
		Open: func(name, baseURL, key string, timeouts llm.Timeouts) (llm.Model, error) {
			return anthropic.New(name, anthropic.Config{Key: secret.New(key), BaseURL: baseURL, Timeouts: timeouts, Retry: llm.Retry{Limit: -1}})
		},
	})
}
