package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

type addition struct {
	A int `json:"a" jsonschema:"the first number"`
	B int `json:"b,omitempty"`
}

func add(_ context.Context, in addition) (string, error) {
	out, err := json.Marshal(in.A + in.B)
	return string(out), err
}

func TestFunc_RunsWithTypedArguments(t *testing.T) {
	sum, err := tool.Func("add", "Adds two numbers.", add)
	require.NoError(t, err)

	result, err := sum.Call(t.Context(), json.RawMessage(`{"a": 2, "b": 40}`))
	require.NoError(t, err)
	require.Equal(t, "42", result.Text)

	var schema map[string]any
	require.NoError(t, json.Unmarshal(sum.Spec().Schema, &schema))
	want := map[string]any{
		"type": "object",
		"properties": map[string]any{
			"a": map[string]any{"type": "integer", "description": "the first number"},
			"b": map[string]any{"type": "integer"},
		},
		"required":             []any{"a"},
		"additionalProperties": false,
	}
	require.Empty(t, cmp.Diff(want, schema))
}

// Req: CO-37
func TestFunc_RejectsArgumentsWithAHint(t *testing.T) {
	sum, err := tool.Func("add", "Adds two numbers.", add)
	require.NoError(t, err)

	for name, tc := range map[string]struct{ args, want string }{
		"missing":    {`{"b": 1}`, "(required: a; all: a, b; provided: b)"},
		"extra":      {`{"a": 1, "c": 2}`, "(required: a; all: a, b; provided: a, c)"},
		"wrong type": {`{"a": "one"}`, "(required: a; all: a, b; provided: a)"},
		"none":       {``, "(required: a; all: a, b; provided: none)"},
		"no JSON":    {`{"a": `, "they are not a JSON object (required: a; all: a, b; provided: none)"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sum.Call(t.Context(), json.RawMessage(tc.args))
			refused, ok := errors.AsType[*failure.Error](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, failure.AgentValidation, refused.Mode)
			require.Contains(t, refused.Message, tc.want)
		})
	}
}

func TestFunc_RejectsInvalidFunctions(t *testing.T) {
	_, err := tool.Func("add numbers", "Adds.", add)
	require.ErrorContains(t, err, `tool name "add numbers"`)
	_, err = tool.Func("add", " ", add)
	require.ErrorContains(t, err, "description is empty")
	_, err = tool.Func("shout", "Shouts.", func(_ context.Context, in string) (string, error) { return in, nil })
	require.ErrorContains(t, err, "must be a struct")
	_, err = tool.Func[addition, string]("add", "Adds.", nil)
	require.ErrorContains(t, err, "no function")
}

// Req: CO-59
func TestSet_KeepsOrderAndRejectsDuplicates(t *testing.T) {
	first, err := tool.Func("zebra", "First.", add)
	require.NoError(t, err)
	second, err := tool.Func("ant", "Second.", add)
	require.NoError(t, err)

	set, err := tool.NewSet(first, second)
	require.NoError(t, err)
	require.Equal(t, []string{"zebra", "ant"}, set.Names())
	found, ok := set.Find("ant")
	require.True(t, ok)
	require.Same(t, second, found)
	_, ok = set.Find("bee")
	require.False(t, ok)

	_, err = tool.NewSet(first, nil)
	require.ErrorContains(t, err, "tool 2 is nil")
	_, err = tool.NewSet(first, second, first)
	require.ErrorContains(t, err, `two tools are named "zebra"`)
}

// Req: LP-16
func TestClient_CallAlwaysFails(t *testing.T) {
	schema := json.RawMessage(`{"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}`)
	made, err := tool.Client("open", "Opens a file.", schema)
	require.NoError(t, err)
	require.Equal(t, "open", made.Spec().Name)
	require.Equal(t, "Opens a file.", made.Spec().Description)
	require.JSONEq(t, string(schema), string(made.Spec().Schema))
	require.Equal(t, execution.AtMostOnce, tool.EffectOf(made))

	_, err = made.Call(t.Context(), json.RawMessage(`{"path": "a"}`))
	require.True(t, failure.Is(err, failure.AgentState), "%v", err)
	require.ErrorContains(t, err, "open runs at the client of the agent, not here")
	_, err = made.Call(t.Context(), json.RawMessage(`{}`))
	require.ErrorContains(t, err, "(required: path; all: path; provided: none)")

	found, ok := tool.AtClient(tool.WithEffect(execution.Read, made))
	require.True(t, ok)
	_, err = found.Check("open", json.RawMessage(`{"path": 1}`))
	require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)
	sum, err := tool.Func("add", "Adds two numbers.", add)
	require.NoError(t, err)
	_, ok = tool.AtClient(tool.WithEffect(execution.Read, sum))
	require.False(t, ok)
}

func TestClient_RejectsInvalidSpecs(t *testing.T) {
	for want, tc := range map[string]struct{ name, description, schema string }{
		`tool name "open it"`:           {"open it", "Opens.", `{"type": "object"}`},
		"description is empty":          {"open", " ", `{"type": "object"}`},
		"schema of the arguments is mi": {"open", "Opens.", ``},
		`must have the type "object"`:   {"open", "Opens.", `{"type": "string"}`},
		"the schema cannot be read":     {"open", "Opens.", `{"type": 7}`},
		`the schema holds itself, at`:   {"open", "Opens.", `{"type": "object", "$ref": "#"}`},
	} {
		_, err := tool.Client(tc.name, tc.description, json.RawMessage(tc.schema))
		require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)
		require.ErrorContains(t, err, want)
	}
}
