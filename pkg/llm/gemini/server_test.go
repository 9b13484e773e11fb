package gemini_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/internal/llmreplay"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/gemini"
	"github.com/troupe-dev/troupe/pkg/secret"
)

func TestMain(m *testing.M) {
	// A library that the SDK uses starts this goroutine in an init function, and never ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

const key = "AIza-test-0123456789"

// openModel returns a model that sends each request once, to the server s.
func openModel(t *testing.T, s *llmreplay.Server, c gemini.Config) llm.Model {
	t.Helper()
	c.Key, c.BaseURL, c.Retry = secret.New(key), s.URL, llm.Retry{Limit: -1}
	m, err := gemini.New("gemini/gemini-3-pro", c)
	require.NoError(t, err)
	return m
}
