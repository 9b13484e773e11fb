package gemini_test

import (
	"testing"

	"github.com/troupe-dev/troupe/internal/geminitest"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/gemini"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
	"github.com/troupe-dev/troupe/pkg/secret"
)

// Req: CO-11, CO-12, CO-13
func TestModel_PassesTheSuite(t *testing.T) {
	llmtest.Run(t, llmtest.Provider{
		Name: gemini.Prefix,
		Wire: geminitest.Wire{},
		// The provider may send calls without ids.
		NoCallIDs:     true,
		NoCacheWrites: true,
		NoThoughts:    true,
		Open: func(name, baseURL, key string, timeouts llm.Timeouts) (llm.Model, error) {
			return gemini.New(name, gemini.Config{Key: secret.New(key), BaseURL: baseURL, Timeouts: timeouts, Retry: llm.Retry{Limit: -1}})
		},
	})
}
