package anthropic_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/internal/llmreplay"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/anthropic"
	"github.com/troupe-dev/troupe/pkg/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-ant-test-0123456789"

// openModel returns a model that sends each request once, to the server s.
func openModel(t *testing.T, s *llmreplay.Server, c anthropic.Config) llm.Model {
	t.Helper()
	c.Key, c.BaseURL, c.Retry = secret.New(key), s.URL, llm.Retry{Limit: -1}
	m, err := anthropic.New("anthropic/claude-sonnet-5", c)
	require.NoError(t, err)
	return m
}
