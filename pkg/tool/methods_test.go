package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// shop has methods with and without the signature of a tool.
type shop struct{ sold []string }

type size string

func (size) Enum() []any { return []any{"small", "large"} }

type order struct {
	Item  string  `json:"item" jsonschema:"what to buy"`
	Size  size    `json:"size"`
	Cup   *size   `json:"cup,omitempty"`
	Other []size  `json:"other,omitzero"`
	Note  *string `json:"note,omitempty"`
}

func (s *shop) BuyNow(_ context.Context, o order) (map[string]int, error) {
	if o.Item == "nothing" {
		return nil, errors.New("nothing is not sold")
	}
	s.sold = append(s.sold, string(o.Size)+" "+o.Item)
	return map[string]int{"sold": len(s.sold)}, nil
}

func (*shop) HTTPStatus(context.Context, noArguments) (string, error) { return "open", nil }
func (*shop) Hidden(context.Context, noArguments) (string, error)     { return "", nil }
func (*shop) Untyped(context.Context, noArguments) error              { return nil }
func (*shop) Any(context.Context, any) (string, error)                { return "", nil }

// Req: CO-60
func TestMethods_ReturnsToolsWithInferredSchemas(t *testing.T) {
	s := &shop{}
	tools, err := tool.Methods(s, map[string]string{
		"HTTPStatus": "Tells whether it is open.",
		"BuyNow":     "\nBuys something,\nat once.\n\nIt is not for models to know how.\n",
	})
	require.NoError(t, err)
	set, err := tool.NewSet(tools...)
	require.NoError(t, err)
	require.Equal(t, []string{"buy_now", "http_status"}, set.Names())
	require.Equal(t, "Buys something, at once.", set.Specs()[0].Description, "the first paragraph")
	require.JSONEq(t, `{
		"type": "object", "required": ["item", "size"], "additionalProperties": false,
		"properties": {
			"item": {"type": "string", "description": "what to buy"},
			"size": {"type": "string", "enum": ["small", "large"]},
			"cup": {"type": ["null", "string"], "enum": ["small", "large", null]},
			"other": {"type": ["null", "array"], "items": {"type": "string", "enum": ["small", "large"]}},
			"note": {"type": ["null", "string"]}
		}}`, string(set.Specs()[0].Schema))

	call := func(name, args string) (string, error) {
		made, _ := set.Find(name)
		result, err := made.Call(t.Context(), json.RawMessage(args))
		return result.Text, err
	}
	text, err := call("http_status", ``)
	require.NoError(t, err)
	require.Equal(t, "open", text)
	text, err = call("buy_now", `{"item": "tea", "size": "large", "cup": null, "other": ["small"]}`)
	require.NoError(t, err)
	require.Equal(t, `{"sold":1}`, text)
	require.Empty(t, cmp.Diff([]string{"large tea"}, s.sold))
	_, err = call("buy_now", `{"item": "nothing", "size": "large"}`)
	require.EqualError(t, err, "nothing is not sold")
	for _, wrong := range []string{
		`{"item": "tea"}`, `{"item": "tea", "size": "huge"}`, `{"item": "tea", "size": "large", "cup": "huge"}`,
		`{"item": 1, "size": "large"}`,
	} {
		_, err = call("buy_now", wrong)
		require.True(t, failure.Is(err, failure.AgentValidation), wrong)
		require.ErrorContains(t, err, "(required: item, size; all: cup, item, note, other, size; provided: ")
	}
	require.Len(t, s.sold, 1)
}

// Req: CO-60
func TestMethods_RejectsInvalidMethods(t *testing.T) {
	for says, c := range map[string]struct {
		of   any
		docs map[string]string
	}{
		"method Sell of *tool_test.shop: there is none; it has Any, BuyNow, HTTPStatus, Hidden, Untyped":                                                            {&shop{}, map[string]string{"Sell": "Sells."}},
		"method Untyped of *tool_test.shop: its form is func(context.Context, tool_test.noArguments) error; want func(context.Context, a struct) (anything, error)": {&shop{}, map[string]string{"Untyped": "Does."}},
		"method Any of *tool_test.shop: its form is func(context.Context, interface {}) (string, error); want func(context.Context, a struct) (anything, error)":    {&shop{}, map[string]string{"Any": "Does."}},
		"method BuyNow of *tool_test.shop: the description is empty; the model chooses tools by it":                                                                 {&shop{}, map[string]string{"BuyNow": " \n"}},
		"method BuyNow of tool_test.shop: there is none; it has none":                                                                                               {shop{}, map[string]string{"BuyNow": "Buys."}},
		"method BuyNow of <nil>: there is no value":                                                                                                                 {nil, map[string]string{"BuyNow": "Buys."}},
		"method Wrong of tool_test.wrongEnum: tool_test.emptyEnum lists no values in its Enum":                                                                      {wrongEnum{}, map[string]string{"Wrong": "Is wrong."}},
	} {
		_, err := tool.Methods(c.of, c.docs)
		require.True(t, failure.Is(err, failure.AgentValidation))
		require.ErrorContains(t, err, says)
	}
}

type emptyEnum string

func (emptyEnum) Enum() []any { return nil }

type wrongEnum struct{}

func (wrongEnum) Wrong(context.Context, struct{ Of map[string]*emptyEnum }) (string, error) {
	return "", nil
}
