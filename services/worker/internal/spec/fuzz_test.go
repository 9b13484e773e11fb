package spec_test

import (
	"context"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/manifest"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/extractive"
	"github.com/troupe-dev/troupe/services/worker/internal/builtin"
	"github.com/troupe-dev/troupe/services/worker/internal/spec"
)

// Building an agent from an arbitrary declaration returns an agent or an error. It never panics. The test skips
// declarations that would start a program, connect to an address or open a file.
func FuzzBuild(f *testing.F) {
	const head = "apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: one}\nspec: "
	for _, body := range []string{
		"{model: builtin/extractive}", "{model: [builtin/extractive, {name: builtin/extractive, timeout: 1s, hedge: {after: 1ms}}], temperature: .nan}",
		"{model: builtin/extractive, tools: [{builtin: search_documents, with: {path: .}}, {builtin: current_time, untrusted: " +
			"true, egress: false, capabilities: [a]}]}",
		"{model: builtin/extractive, tools: [{client: {name: pick, description: Picks., parameters: {type: object, properties: {a: {$ref: '#'}}}}}]}",
		"{model: builtin/extractive, tools: [{client: {name: pick, description: Picks., parameters: {pattern: '(a+)+$', .inf: 1}}}, {mcp: {tools: [a], prefix: b}}]}",
		"{model: builtin/extractive, plugins: [reflection, {compaction: {above: 1e999}}, {guardrails: {input: {forbid: ['(']}}}, " +
			"{ratelimit: {wait: -1s}}, {trust: {level: x}}, toollog]}",
		"{model: builtin/extractive, instructions: {file: ../a}, guard: strict, onFailure: degrade, config: {protocol: merge}, " +
			"limits: {capacity: -1, timeout: 99999h}}",
		"{model: &a [*a]}", "{model: {name: &a builtin/extractive}, description: *a}", "{}", "[]",
	} {
		f.Add(head + body + "\n")
	}
	models, err := llm.NewCatalog(extractive.Provider())
	require.NoError(f, err)
	ended, end := context.WithCancel(context.Background())
	end() // no time to start an MCP server
	f.Fuzz(func(t *testing.T, text string) {
		folder := fstest.MapFS{"a.yaml": {Data: []byte(text)}}
		docs, _ := manifest.Load(folder) // another target tests invalid manifests
		for _, d := range docs {
			var all any
			if d.Decode(&all) != nil || reachesOutside(all) {
				return
			}
		}
		a, err := spec.Build(ended, folder, "", spec.Dependencies{Models: models, Tools: builtin.Catalog{}})
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.NotEmpty(t, a.Name())
	})
}

// reachesOutside reports whether building the agent would use something outside of the declaration: a program, an
// address, an environment variable or a file.
func reachesOutside(value any) bool {
	switch value := value.(type) {
	case []any:
		return slices.ContainsFunc(value, reachesOutside)
	case map[string]any:
		for key, item := range value {
			switch key {
			case "command", "url", "env", "tokenEnv", "clients", "invitesFile":
				return true
			}
			if reachesOutside(item) {
				return true
			}
		}
	case map[any]any: // with keys that are not text
		return true
	}
	return false
}
