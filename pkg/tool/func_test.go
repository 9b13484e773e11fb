package tool_test

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

type noArguments struct{}

// resultText returns what the model reads after a tool has returned out.
func resultText[Out any](t *testing.T, out Out) (string, error) {
	t.Helper()
	gives, err := tool.Func("give", "Gives.", func(context.Context, noArguments) (Out, error) { return out, nil })
	require.NoError(t, err)
	result, err := gives.Call(t.Context(), nil)
	return result.Text, err
}

// Req: CO-39
func TestFunc_ReturnsTextUnchangedAndOtherValuesAsJSON(t *testing.T) {
	type place struct {
		Name string    `json:"name"`
		At   []float64 `json:"at"`
		Note *string   `json:"note,omitempty"`
	}
	for want, got := range map[string]func() (string, error){
		"a <b> & c":                     func() (string, error) { return resultText(t, "a <b> & c") },
		"":                              func() (string, error) { return resultText(t, "") },
		`"text in an any"`:              func() (string, error) { return resultText[*string](t, new("text in an any")) },
		"text of an any":                func() (string, error) { return resultText[any](t, "text of an any") },
		"42":                            func() (string, error) { return resultText(t, 42) },
		"true":                          func() (string, error) { return resultText(t, true) },
		"null":                          func() (string, error) { return resultText[*place](t, nil) },
		`["<a>","b"]`:                   func() (string, error) { return resultText(t, []string{"<a>", "b"}) },
		`{"name":"Oslo","at":[59.9,1]}`: func() (string, error) { return resultText(t, place{Name: "Oslo", At: []float64{59.9, 1}}) },
		`{"a":1,"b":2}`:                 func() (string, error) { return resultText(t, map[string]int{"b": 2, "a": 1}) },
		`{"raw":1}`:                     func() (string, error) { return resultText(t, json.RawMessage(`{"raw": 1}`)) },
		`"2026-01-02T03:04:05Z"`:        func() (string, error) { return resultText(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) },
	} {
		text, err := got()
		require.NoError(t, err)
		require.Equal(t, want, text)
	}
}

type cyclicValue struct {
	Next *cyclicValue `json:"next"`
}

// Req: CO-39
func TestFunc_ExplainsAResultThatCannotBeJSON(t *testing.T) {
	loop := &cyclicValue{}
	loop.Next = loop
	for want, got := range map[string]func() (string, error){
		"NaN":         func() (string, error) { return resultText(t, math.NaN()) },
		"+Inf":        func() (string, error) { return resultText(t, []float64{math.Inf(1)}) },
		"cycle":       func() (string, error) { return resultText(t, loop) },
		"chan int":    func() (string, error) { return resultText(t, make(chan int)) },
		"invalid cha": func() (string, error) { return resultText(t, json.RawMessage("x")) },
	} {
		text, err := got()
		require.Empty(t, text)
		require.True(t, failure.Is(err, failure.AgentLogic), "%v", err)
		require.Contains(t, failure.PlainMessage(err), want)
		require.Contains(t, failure.PlainMessage(err), "give did run, but its result is no JSON")
	}
}

// A function may return a whole result. The JSON of any other value is the structured result, too.
//
// Req: CO-74, CO-39c
func TestFunc_ReturnsFilesAndStructuredResults(t *testing.T) {
	picture := tool.Result{Text: "taken", Attachments: []conversation.Attachment{{Name: "a.png", Data: []byte("png")}}}
	shoot, err := tool.Func("shoot", "Takes a picture.", func(context.Context, noArguments) (tool.Result, error) { return picture, nil })
	require.NoError(t, err)
	result, err := shoot.Call(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, picture, result)

	count, err := tool.Func("count", "Counts.", func(context.Context, noArguments) (map[string]int, error) { return map[string]int{"n": 1}, nil })
	require.NoError(t, err)
	result, err = count.Call(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, tool.Result{Text: `{"n":1}`, Structured: json.RawMessage(`{"n":1}`)}, result)
}

func TestFunc_BoundsItsJSON(t *testing.T) {
	text, err := resultText(t, []string{strings.Repeat("ä", tool.MaxResult)})
	require.NoError(t, err)
	require.LessOrEqual(t, len(text), tool.MaxResult)
	require.True(t, utf8.ValidString(text))
	require.True(t, strings.HasSuffix(text, "… (cut: it has 524292 bytes)"), text[len(text)-40:])
}

func TestFunc_ReturnsTheErrorDespiteAResult(t *testing.T) {
	fails, err := tool.Func("fail", "Fails.", func(context.Context, noArguments) (float64, error) {
		return math.NaN(), failure.New(failure.ResourceTool, "test", "the disk is full")
	})
	require.NoError(t, err)
	result, err := fails.Call(t.Context(), nil)
	require.Empty(t, result.Text)
	require.True(t, failure.Is(err, failure.ResourceTool), "%v", err)
}

type trip struct {
	To     string            `json:"to"`
	Via    []string          `json:"via,omitempty"`
	When   time.Time         `json:"when,omitzero"`
	Class  *int              `json:"class"`
	Labels map[string]string `json:"labels,omitempty"`
	Guest  struct {
		Name string `json:"name"`
	} `json:"guest"`
	hidden bool
}

// The schema that the model reads has the field descriptions of the Go type.
func TestFunc_SchemaMarksOptionalFields(t *testing.T) {
	var got trip
	book, err := tool.Func("book", "Books.", func(_ context.Context, in trip) (bool, error) {
		got = in
		return in.hidden, nil
	})
	require.NoError(t, err)

	var schema map[string]any
	require.NoError(t, json.Unmarshal(book.Spec().Schema, &schema))
	want := map[string]any{
		"type": "object", "additionalProperties": false,
		"required": []any{"to", "class", "guest"},
		"properties": map[string]any{
			"to":     map[string]any{"type": "string"},
			"via":    map[string]any{"type": []any{"null", "array"}, "items": map[string]any{"type": "string"}},
			"when":   map[string]any{"type": "string"},
			"class":  map[string]any{"type": []any{"null", "integer"}},
			"labels": map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}},
			"guest": map[string]any{
				"type": "object", "additionalProperties": false, "required": []any{"name"},
				"properties": map[string]any{"name": map[string]any{"type": "string"}},
			},
		},
	}
	require.Empty(t, cmp.Diff(want, schema))

	result, err := book.Call(t.Context(), json.RawMessage(`{"to": "Oslo", "class": null, "guest": {"name": "Ann"}}`))
	require.NoError(t, err)
	require.Equal(t, "false", result.Text)
	require.Equal(t, "Ann", got.Guest.Name)
	_, err = book.Call(t.Context(), json.RawMessage(`{"to": "Oslo", "class": 1, "guest": {}}`))
	require.ErrorContains(t, err, "(required: class, guest, to; all: class, guest, labels, to, via, when; provided: class, guest, to)")
}
