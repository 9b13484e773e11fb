package llm_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

func newProvider(prefix string, bare ...string) llm.Provider {
	return llm.Provider{Prefix: prefix, BarePrefixes: bare, Open: func(name string) (llm.Model, error) { return &actionModel{name: name}, nil }}
}

// Req: CO-9, CO-10
func TestCatalog_FindsTheProviderByPrefixOrBareNameInAnyOrder(t *testing.T) {
	providers := []llm.Provider{
		newProvider("openai", "gpt", "o1", "o3", "o4"), newProvider("anthropic", "claude"), newProvider("gemini", "gemini"), newProvider("openrouter"),
	}
	for range providers {
		providers = append(providers[1:], providers[0])
		c, err := llm.NewCatalog(slices.Clone(providers)...)
		require.NoError(t, err)
		for name, want := range map[string]string{
			"openai/gpt-5": "openai/gpt-5", "gpt-5": "openai/gpt-5", "o3-mini": "openai/o3-mini", "o1": "openai/o1", "o4-mini": "openai/o4-mini",
			"claude-sonnet-5": "anthropic/claude-sonnet-5", "gemini-3-pro": "gemini/gemini-3-pro",
			"openrouter/openai/gpt-5": "openrouter/openai/gpt-5", "openai/claude": "openai/claude",
		} {
			m, err := c.Model(name)
			require.NoError(t, err)
			require.Equal(t, want, m.Name())
		}
	}
}

// Req: CO-10
func TestCatalog_ErrorNamesTheModelAndTheProviders(t *testing.T) {
	c, err := llm.NewCatalog(newProvider("openai", "gpt"), newProvider("anthropic", "claude"))
	require.NoError(t, err)
	for name, says := range map[string]string{
		"unknown/large": `no provider has the prefix "unknown"`, "gpt-4/turbo": `no provider has the prefix "gpt-4"`,
		"llama": "put the prefix of one before it", "": "put the prefix of one before it", "openai/": "after the slash", "/x": `the prefix ""`,
	} {
		_, err := c.Model(name)
		require.True(t, failure.Is(err, failure.UserInvalidInput), name)
		require.ErrorContains(t, err, `"`+name+`"`)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "there are anthropic/, openai/")
	}
}

func TestNewCatalog_RejectsAmbiguousProviders(t *testing.T) {
	_, err := llm.NewCatalog(newProvider("a"), newProvider("a"))
	require.ErrorContains(t, err, `two providers have the prefix "a"`)
	_, err = llm.NewCatalog(newProvider("a", "gpt"), newProvider("b", "x", "gpt-5"))
	require.ErrorContains(t, err, `a name may begin with "gpt-5" of b and with "gpt" of a`)
}
