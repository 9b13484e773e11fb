package llm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

func TestWithTemperature_SetsTheTemperatureOfRequestsWithoutOne(t *testing.T) {
	model := scripted.New(scripted.Say("one"), scripted.Say("two"))
	m := llm.WithTemperature(model, 0.3)
	own := 0.0
	for _, req := range []llm.Request{{}, {Temperature: &own}} {
		for _, err := range m.Generate(t.Context(), req) {
			require.NoError(t, err)
		}
	}
	asked := model.Requests()
	require.InDelta(t, 0.3, *asked[0].Temperature, 0)
	require.Zero(t, *asked[1].Temperature)
	require.Equal(t, model.Name(), m.Name())
	require.Equal(t, llm.ContextSizeOf(model), llm.ContextSizeOf(m))
}

func TestTable_MarksModelsWithAFixedTemperature(t *testing.T) {
	for name, fixed := range map[string]bool{
		"openai/gpt-5-mini": true, "openai/o3": true, "openai/gpt-5-2025-08-07": true, "openai/gpt-4.1": false, "anthropic/claude-sonnet-4": false,
	} {
		e, ok := llm.BuiltinTable().Find(name)
		require.True(t, ok, name)
		require.Equal(t, fixed, e.FixedTemperature, name)
	}
}
