package llm_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
)

func TestBuiltinTable_IsCompleteAndDated(t *testing.T) {
	table := llm.BuiltinTable()
	day, err := time.Parse(time.DateOnly, table.AsOf)
	require.NoError(t, err)
	require.False(t, day.IsZero())
	require.NotEmpty(t, table.Models)
	for name, e := range table.Models {
		require.Regexp(t, `^(openai|anthropic|gemini)/[a-z0-9.-]+$`, name)
		require.GreaterOrEqual(t, e.ContextSize, int64(llm.DefaultContextSize), name)
		require.Positive(t, e.Input, name)
		require.Greater(t, e.Output, e.Input, name)
		require.LessOrEqual(t, e.Cached, e.Input, name)
		if e.LongRequest != nil {
			require.Less(t, e.LongRequest.Tokens, e.ContextSize+1, name)
			require.Greater(t, e.LongRequest.Input, e.Input, name)
		}
	}
}

// Req: CO-12
func TestTable_CostAddsUpEachKindOfToken(t *testing.T) {
	e := llm.ModelEntry{Price: llm.Price{Input: 2, Cached: 0.5, CacheWrite: 2.5, Output: 8}, LongRequest: &llm.LongRequestPrice{
		Tokens: 1000,
		Price:  llm.Price{Input: 4, Output: 16},
	}}
	require.EqualValues(t, 100*2+800*0.5+100*2.5+50*8, e.Cost(execution.Usage{InputTokens: 1000, CachedTokens: 800, CacheWriteTokens: 100, OutputTokens: 50}))
	require.EqualValues(t, 1001*4+50*16, e.Cost(execution.Usage{InputTokens: 1001, CachedTokens: 800, OutputTokens: 50}),
		"a long request costs more, and a price that is not listed is the price of input")
	require.Zero(t, llm.ModelEntry{ContextSize: 5}.Cost(execution.Usage{InputTokens: 1000}), "not known")
}

// Req: CO-12
func TestTable_FindsOnlyKnownModels(t *testing.T) {
	table := llm.BuiltinTable()
	for _, name := range []string{"openai/gpt-5", "openai/gpt-5-2025-08-07", "anthropic/claude-haiku-4-5-20251001"} {
		_, ok := table.Find(name)
		require.True(t, ok, name)
	}
	for _, name := range []string{"openai/gpt-5-turbo", "gpt-5", "openai/gpt-99", "groq/gpt-5", "openai/gpt-5-2025", ""} {
		_, ok := table.Find(name)
		require.False(t, ok, name)
	}
}

func TestReadTable_RejectsInvalidTables(t *testing.T) {
	for text, says := range map[string]string{
		`{"asOf":"2026-01-02","models":{"a/b":{"input":-1}}}`: "a/b has a negative number",
		`{"asOf":"soon"}`: "asOf", `[]`: "read the table",
	} {
		_, err := llm.ReadTable([]byte(text))
		require.ErrorContains(t, err, says)
	}
}

// Usage that arrives in several parts costs the same as usage in one part.
func TestPriced_CostIsTheSameForUsageInParts(t *testing.T) {
	table := llm.BuiltinTable()
	e, _ := table.Find("anthropic/claude-sonnet-4-5")
	rapid.Check(t, func(r *rapid.T) {
		a := &actionModel{name: "anthropic/claude-sonnet-4-5", requests: [][]modelAction{nil}}
		var whole execution.Usage
		for range rapid.IntRange(0, 6).Draw(r, "pieces") {
			in := rapid.Int64Range(0, 90_000).Draw(r, "in")
			u := execution.Usage{InputTokens: in, CachedTokens: in / 3, CacheWriteTokens: in / 7, OutputTokens: rapid.Int64Range(0, 999).Draw(r, "out")}
			whole = whole.Add(u)
			a.requests[0] = append(a.requests[0], modelAction{delta: llm.Delta{Usage: u}})
		}
		require.Equal(t, e.Cost(whole), ask(t.Context(), t, llm.Priced(a, table)).usage.CostMicros)
	})
}

func TestPriced_KeepsTheCostOfUnknownModels(t *testing.T) {
	unknown := &actionModel{name: "test/a"}
	require.Same(t, unknown, llm.Priced(unknown, llm.BuiltinTable()))
	told := modelAction{delta: llm.Delta{Usage: execution.Usage{InputTokens: 1000, CostMicros: 3}}}
	m := llm.Priced(&actionModel{name: "openai/gpt-5", requests: [][]modelAction{{told}}}, llm.BuiltinTable())
	require.EqualValues(t, 3, ask(t.Context(), t, m).usage.CostMicros)
}

// modelWithContextSize is a model that knows its context size.
type modelWithContextSize struct {
	llm.Model
	tokens int64
}

func (s modelWithContextSize) ContextSize() int64 { return s.tokens }

// Req: CO-21
func TestContextSizeOf_UsesModelThenTableThenDefault(t *testing.T) {
	plain, known := &actionModel{name: "test/a"}, &actionModel{name: "openai/gpt-5"}
	table := llm.BuiltinTable()
	require.EqualValues(t, 128_000, llm.ContextSizeOf(plain))
	require.EqualValues(t, 400_000, llm.ContextSizeOf(llm.Retried(llm.Priced(known, table), llm.Retry{})))
	require.EqualValues(t, 32_000, llm.ContextSizeOf(llm.Priced(modelWithContextSize{known, 32_000}, table)))
	require.EqualValues(t, 128_000, llm.ContextSizeOf(llm.Hedged(plain, llm.Priced(known, table), time.Second)))
	chain, err := llm.Failover("chain/a", llm.Priced(known, table), modelWithContextSize{plain, 8_000})
	require.NoError(t, err)
	require.EqualValues(t, 8_000, llm.ContextSizeOf(chain))
}

// Each model of a chain is charged at its own price.
func TestPriced_EachModelOfAChainHasItsOwnPrice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := llm.BuiltinTable()
		spent := modelAction{delta: llm.Delta{Usage: execution.Usage{InputTokens: 1_000_000}}}
		a := &actionModel{name: "openai/gpt-5", requests: [][]modelAction{{spent, failWith(llm.Unavailable, 0)}}}
		b := &actionModel{name: "openai/gpt-5-nano", requests: [][]modelAction{{spent, sayText("hi")}}}
		chain, err := llm.Failover("chain/a", llm.Priced(a, table), llm.Priced(b, table))
		require.NoError(t, err)
		require.EqualValues(t, 1_250_000+50_000, ask(t.Context(), t, chain).usage.CostMicros)
	})
}
