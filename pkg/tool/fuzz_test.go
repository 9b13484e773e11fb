package tool_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Whatever arguments a model sends, they either reach the tool as its argument type or are rejected.
func FuzzArguments(f *testing.F) {
	type in struct {
		City  string         `json:"city"`
		Days  int            `json:"days,omitempty"`
		Tags  []string       `json:"tags,omitempty"`
		Where map[string]any `json:"where,omitempty"`
	}
	for _, text := range []string{
		"", "null", "{}", `{"city":"Rome"}`, `{"city":"Rome","days":1e99}`, `{"city":1}`, `{"city":"a","city":2}`,
		`{"city":"a","where":{"x":[[[[]]]]}}`, `{"City":"a"}`, "[", `{"city":"\ud800"}`, `"{\"city\":\"Rome\"}"`,
	} {
		f.Add([]byte(text))
	}
	look, err := tool.Func("look", "Looks.", func(_ context.Context, in in) (in, error) { return in, nil })
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, args []byte) {
		result, err := look.Call(t.Context(), args)
		if err != nil {
			require.NotEqual(t, failure.Unknown, failure.ModeOf(err), "%v", err)
			return
		}
		require.True(t, json.Valid([]byte(result.Text)) || len(result.Text) > 200_000, "%q", result.Text)
	})
}
