package tool_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Req: CO-37
func TestSchema_ChecksArgumentsWithAHint(t *testing.T) {
	s, err := tool.NewSchema(json.RawMessage(`{
		"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
		"properties": {"path": {"$ref": "#/definitions/path"}, "to": {"$ref": "#/definitions/path"}},
		"required": ["path"], "definitions": {"path": {"type": "string", "minLength": 1}}}`))
	require.NoError(t, err)

	args, err := s.Check("read", json.RawMessage(` {"path": "a", "big": 12345678901234567890} `))
	require.NoError(t, err)
	require.Equal(t, `{"path": "a", "big": 12345678901234567890}`, string(args))
	for _, wrong := range []string{``, `null`, `{"to": "b"}`, `{"path": ""}`, `{"path": 1}`, `["path"]`, `{`} {
		_, err = s.Check("read", json.RawMessage(wrong))
		require.True(t, failure.Is(err, failure.AgentValidation), wrong)
		require.ErrorContains(t, err, "the arguments of read do not fit")
		require.ErrorContains(t, err, "(required: path; all: path, to; provided: ")
	}
}

// A check against each of these schemas would overflow the stack or never end.
func TestNewSchema_RejectsEndlessSchemas(t *testing.T) {
	var doubling strings.Builder
	for i := range 40 {
		fmt.Fprintf(&doubling, `"d%d": {"allOf": [{"$ref": "#/$defs/d%d"}, {"$ref": "#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	for want, text := range map[string]string{
		`the schema holds itself, at "#"`:                      `{"type": "object", "$ref": "#"}`,
		`the schema holds itself, at "#/$defs/a"`:              `{"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}`,
		`the schema refers to "#a", and only`:                  `{"$anchor": "a", "$ref": "#a"}`,
		`the schema refers to "https://example.com/x"`:         `{"$ref": "https://example.com/x"}`,
		`the schema refers to "#/$defs/b/c", which is not`:     `{"$ref": "#/$defs/b/c"}`,
		`the schema refers to "#/allOf/7", which is not there`: `{"allOf": [{"$ref": "#/allOf/7"}]}`,
		`the schema has more than 20000 parts`:                 `{"$ref": "#/$defs/d0", "$defs": {` + doubling.String() + `"d40": {}}}`,
		`the schema cannot be read`:                            `{"type": 7}`,
	} {
		_, err := tool.NewSchema(json.RawMessage(text))
		require.ErrorContains(t, err, want)
	}
}

func TestTruncateResult_MarksACutResult(t *testing.T) {
	require.Equal(t, "short", tool.TruncateResult("short"))
	cut := tool.TruncateResult(strings.Repeat("ä", tool.MaxResult))
	require.LessOrEqual(t, len(cut), tool.MaxResult)
	require.True(t, strings.HasSuffix(cut, fmt.Sprintf("ä… (cut: it has %d bytes)", 2*tool.MaxResult)))
}
