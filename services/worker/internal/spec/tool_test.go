package spec_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/services/worker/internal/builtin"
	"github.com/troupe-dev/troupe/services/worker/internal/spec"
)

func TestBuild_CreatesClientTools(t *testing.T) {
	model := scripted.New(scripted.Say("hi"))
	answer, _ := askModel(t, `test/up
  tools:
    - client:
        name: show_map
        description: Shows a place on the map of the user.
        parameters:
          type: object
          properties: {place: {type: string}, zoom: {type: integer, minimum: 1}}
          required: [place]
    - client: {name: beep, description: Beeps.}`, map[string]llm.Model{"up": model})
	require.Equal(t, "hi", answer)
	tools := model.Requests()[0].Tools
	require.Len(t, tools, 2)
	require.Equal(t, "show_map", tools[0].Name)
	require.Equal(t, "Shows a place on the map of the user.", tools[0].Description)
	require.JSONEq(t, `{"type":"object","properties":{"place":{"type":"string"},"zoom":{"type":"integer","minimum":1}},"required":["place"]}`,
		string(tools[0].Schema))
	require.JSONEq(t, `{"type":"object"}`, string(tools[1].Schema))
}

func TestBuild_ReportsInvalidClientTools(t *testing.T) {
	build := func(tools string) []string {
		_, err := spec.Build(t.Context(), agentFolder("  model: builtin/extractive\n  tools:\n"+tools), "",
			spec.Dependencies{Models: modelProviders(t), Tools: builtin.Catalog{}})
		require.Error(t, err)
		return strings.Split(err.Error(), "\n")
	}
	require.Empty(t, cmp.Diff([]string{`agents.yaml:7: unknown field "tools[0].client.nme"; did you mean "name"?`}, build("    - client: {nme: a}\n")))
	require.Empty(t, cmp.Diff([]string{
		`agents.yaml:7: tools[0].client: tool name "": use 1 to 64 letters, digits, underscores and hyphens`,
		`agents.yaml:8: tools[1].client: tool name "a b": use 1 to 64 letters, digits, underscores and hyphens`,
		`agents.yaml:9: tools[2].client: tool a: the description is empty; the model chooses tools by it`,
		`agents.yaml:10: tools[3].client: tool a: the schema of the arguments must have the type "object"`,
		`agents.yaml:14: tools[4].client.parameters: the schema refers to "https://example.com", and only references such as #/$defs/name are followed`,
		`agents.yaml:15: tools[5].client.parameters: want a JSON Schema, such as {type: object, properties: {place: {type: string}}}`,
		`agents.yaml:16: tools[6].client.parameters: want values that JSON can represent: json: unsupported value: NaN`,
		`agents.yaml:17: tools[7]: use builtin, mcp or client, and only one of them`,
	}, build(`    - client: {}
    - client: {name: a b, description: Does.}
    - client: {name: a}
    - client: {name: a, description: Does., parameters: {type: string}}
    - client:
        name: a
        description: Does.
        parameters: {$ref: "https://example.com"}
    - client: {name: a, description: Does., parameters: [x]}
    - client: {name: a, description: Does., parameters: {type: object, maximum: .nan}}
    - client: {name: a, description: Does.}
      with: {path: .}
`)))
}

// A tool has the capabilities that are declared with it.
func TestBuild_DeclaresCapabilitiesOfTools(t *testing.T) {
	build := func(tools string) (*agent.Agent, error) {
		return spec.Build(t.Context(), agentFolder("  model: builtin/extractive\n  tools:\n"+tools), "", spec.Dependencies{
			Models: modelProviders(t),
			Tools:  builtin.Catalog{},
		})
	}
	a, err := build("    - {builtin: current_time, capabilities: [time]}\n    - {client: {name: beep, description: Beeps.}, " +
		"capabilities: [noise, home]}\n    - client: {name: buzz, description: Buzzes.}\n")
	require.NoError(t, err)
	require.Equal(t, []agent.ToolInfo{
		{Name: "current_time", Capabilities: []string{"time"}}, {Name: "beep", Capabilities: []string{"home", "noise"}}, {Name: "buzz"},
	}, a.Toolbox())
	_, err = build("    - builtin: current_time\n      capabilities: [Time]\n")
	require.EqualError(t, err, `agents.yaml:8: tools[0].capabilities: "Time" is no capability; want 1 to 63 of a-z, 0-9, dot and hyphen`)
}
