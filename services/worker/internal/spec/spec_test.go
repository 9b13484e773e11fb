package spec_test

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/extractive"
	"github.com/troupe-dev/troupe/services/worker/internal/builtin"
	"github.com/troupe-dev/troupe/services/worker/internal/spec"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func modelProviders(t *testing.T, providers ...llm.Provider) *llm.Catalog {
	t.Helper()
	c, err := llm.NewCatalog(append(providers, extractive.Provider())...)
	require.NoError(t, err)
	return c
}

func agentFolder(spec string) fstest.MapFS {
	return fstest.MapFS{
		"agents.yaml":   {Data: []byte("apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: one}\nspec:\n" + spec)},
		"prompts/a.md":  {Data: []byte("Be brief.\n")},
		"workflow.yaml": {Data: []byte("apiVersion: troupe.dev/v1\nkind: Workflow\nmetadata: {name: flow}\nspec: {entry: one}\n")},
	}
}

func TestBuild_CreatesTheDeclaredAgent(t *testing.T) {
	a, err := spec.Build(t.Context(), agentFolder(`
  model: builtin/extractive
  description: Does one thing.
  version: 1.2
  instructions: {file: prompts/a.md}
  tools:
    - builtin: search_documents
      with: {path: ./docs}
  asksUser: true
  onFailure: degrade
  limits: {maxIterations: 3, capacity: 2, timeout: 1m}
  lifecycle: {timeout: 5s, cleanupOnError: false, statePersistence: agent}
`), "", spec.Dependencies{Models: modelProviders(t), Tools: builtin.Catalog{}})
	require.NoError(t, err)
	require.Equal(t, "one", a.Name())
	require.Equal(t, "Does one thing.", a.Description())
	require.Equal(t, "1.2", a.Version())
	require.Equal(t, "builtin/extractive", a.Model())
	require.Equal(t, []string{"search_documents"}, a.Tools())
	require.Equal(t, 2, a.Capacity())
	require.Equal(t, 5*time.Second, a.Lifecycle().Timeout)
	require.True(t, a.Lifecycle().KeepFailed)
	require.True(t, a.Lifecycle().DropState)
}

// Req: CO-9
func TestBuild_ReportsAllProblemsWithTheirLines(t *testing.T) {
	for name, tc := range map[string]struct {
		spec string
		want []string
	}{
		"shape": {
			"  modl: x\n  somethingelse: [reflection]\n  tools: [{mpc: {command: [npx]}}]\n  lifecycle: {timeout: 30, retryOnFailures: true}\n",
			[]string{
				`agents.yaml:5: unknown field "modl"; did you mean "model"?`,
				`agents.yaml:6: unknown field "somethingelse"; there are asksUser, capabilities, config, description, guard, instructions, lifecycle, limits, model, onFailure, plugins, temperature, tools, version`,
				`agents.yaml:7: unknown field "tools[0].mpc"; did you mean "mcp"?`,
				`agents.yaml:8: lifecycle.timeout: want a duration such as 30s or 5m, got "30"`,
				`agents.yaml:8: unknown field "lifecycle.retryOnFailures"; did you mean "retryOnFailure"?`,
			},
		},
		"meaning": {
			`  model: nobody/nothing
  instructions: {file: prompts/b.md}
  tools:
    - with: {path: x}
    - builtin: search_document
    - builtin: search_documents
    - builtin: search_documents
      with: {pth: x}
  onFailure: retry
  limits: {maxIterations: -1, capacity: 100000, timeout: -1s}
  lifecycle: {timeout: -1s, maxRetries: 2, statePersistence: disk}
`,
			[]string{
				`agents.yaml:6: instructions.file: prompts/b.md cannot be read from the folder of this file`,
				`agents.yaml:5: model "nobody/nothing": no provider has the prefix "nobody"; there are builtin/`,
				`agents.yaml:8: tools[0].builtin is missing; use mcp for the tools of a server, client for one of the client, or one of current_time, http_fetch, search_documents`,
				`agents.yaml:9: tools[1]: there is no builtin tool "search_document"; did you mean "search_documents"?`,
				`agents.yaml:10: tools[2].with.path is missing: name the folder to search, such as ./docs`,
				`agents.yaml:12: unknown field "pth"; did you mean "path"?`,
				`agents.yaml:14: limits.maxIterations is -1; use 1 to 1000, or leave it out for 10`,
				`agents.yaml:14: limits.capacity is 100000; use 1 to 10000, or leave it out for 16`,
				`agents.yaml:14: limits.timeout is -1s; use a positive duration, or leave it out for 2m0s`,
				`agents.yaml:15: lifecycle.timeout is -1s; use a positive duration, or leave it out for 30s`,
				`agents.yaml:15: lifecycle.maxRetries is 2; use it with retryOnFailure: true, and 1 or more`,
				`agents.yaml:15: lifecycle.statePersistence is "disk"; use memory or agent`,
				`agents.yaml:13: onFailure is "retry"; use fail or degrade`,
			},
		},
		"temperature": {
			"  model: builtin/extractive\n  temperature: 3\n",
			[]string{`agents.yaml:6: temperature is 3; use 0 to 2, or leave it out for the provider's own`},
		},
		"no model": {"  description: x\n", []string{`agents.yaml:5: model is missing; the prefixes there are: builtin/`}},
		"both instructions": {
			"  model: builtin/extractive\n  instructions: {file: prompts/a.md, text: x}\n",
			[]string{`agents.yaml:6: instructions: use text or file, not both`},
		},
		"file outside": {
			"  model: builtin/extractive\n  instructions: {file: ../secret.md}\n",
			[]string{`agents.yaml:6: instructions.file is "../secret.md"; use a path inside the folder of this file`},
		},
		"same tool twice": {
			"  model: builtin/extractive\n  tools: [{builtin: search_documents, with: {path: a}}, {builtin: search_documents, with: {path: b}}]\n",
			[]string{`agents.yaml:1: agent "one" is not valid: Tools: two tools are named "search_documents": rename one`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := spec.Build(t.Context(), agentFolder(tc.spec), "one", spec.Dependencies{Models: modelProviders(t), Tools: builtin.Catalog{}})
			require.Error(t, err)
			require.Empty(t, cmp.Diff(tc.want, strings.Split(err.Error(), "\n")))
		})
	}
}

func TestBuild_UnknownAgentErrorListsTheAgents(t *testing.T) {
	fsys := agentFolder("  model: builtin/extractive\n")
	_, err := spec.Build(t.Context(), fsys, "won", spec.Dependencies{Models: modelProviders(t), Tools: builtin.Catalog{}})
	require.ErrorContains(t, err, `agent "won" is not declared: did you mean "one"?`)
	_, err = spec.Build(t.Context(), fsys, "something", spec.Dependencies{Models: modelProviders(t), Tools: builtin.Catalog{}})
	require.ErrorContains(t, err, "there are one")

	fsys["more.yaml"] = &fstest.MapFile{Data: []byte("apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: two}\nspec: {}\n")}
	_, err = spec.Build(t.Context(), fsys, "", spec.Dependencies{Models: modelProviders(t), Tools: builtin.Catalog{}})
	require.ErrorContains(t, err, "say which agent to run: there are one, two")
	names, err := spec.Names(fsys)
	require.NoError(t, err)
	require.Equal(t, []string{"one", "two"}, names)
}
