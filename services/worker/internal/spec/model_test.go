package spec_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/services/worker/internal/builtin"
	"github.com/troupe-dev/troupe/services/worker/internal/spec"
)

// modelCatalog returns a provider that opens the given models. Their full names have the prefix "test/".
func modelCatalog(models map[string]llm.Model) llm.Provider {
	return llm.Provider{Prefix: "test", Open: func(name string) (llm.Model, error) {
		m, ok := models[strings.TrimPrefix(name, "test/")]
		if !ok {
			return nil, failure.Newf(failure.UserInvalidInput, "test", "model %q is not in the catalog", name)
		}
		return m, nil
	}}
}

// askModel builds an agent with the declared model, and returns its answer and the name of the model.
func askModel(t *testing.T, declared string, models map[string]llm.Model) (answer, name string) {
	t.Helper()
	a, err := spec.Build(t.Context(), agentFolder("  model: "+declared+"\n"), "", spec.Dependencies{
		Models: modelProviders(t, modelCatalog(models)),
		Tools:  builtin.Catalog{},
	})
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	defer func() { require.NoError(t, a.Close()) }()
	step := execution.Step{History: []conversation.Message{conversation.User("Hello?")}}
	done, err := a.Execute(t.Context(), agent.Invocation{Step: step}, func(event.Event) error { return nil })
	require.NoError(t, err)
	return done.Result.Text, a.Model()
}

func TestBuild_ModelMayBeAFailoverChain(t *testing.T) {
	source := llm.Source{Provider: "test", Model: "test/down"}
	down := func() *scripted.Model { return scripted.New(scripted.Fail(source.NewError(llm.Unavailable, nil))) }
	silent := func() *scripted.Model {
		return scripted.New(scripted.Reply{Deltas: []string{"too late"}, Wait: make(chan struct{})})
	}
	spoken := func() *scripted.Model { return scripted.New(scripted.Say("here")) }
	for name, c := range map[string]struct {
		declared string
		models   map[string]llm.Model
		name     string
	}{
		"one of its name":    {"test/up", map[string]llm.Model{"up": spoken()}, "scripted/model"},
		"one in a list":      {"[test/up]", map[string]llm.Model{"up": spoken()}, "scripted/model"},
		"one with a timeout": {"{name: test/up, timeout: 1m}", map[string]llm.Model{"up": spoken()}, "scripted/model"},
		"the next one":       {"[test/down, test/up]", map[string]llm.Model{"down": down(), "up": spoken()}, "chain/one"},
		"the last one": {
			"\n    - {name: test/silent, timeout: 10ms}\n    - test/down\n    - name: test/up",
			map[string]llm.Model{"silent": silent(), "down": down(), "up": spoken()},
			"chain/one",
		},
		"the hedge": {
			"{name: test/silent, hedge: {after: 10ms, model: test/up}}",
			map[string]llm.Model{"silent": silent(), "up": spoken()},
			"scripted/model",
		},
		"the hedge of a link": {
			"[test/down, {name: test/silent, timeout: 1m, hedge: {after: 10ms, model: test/up}}]",
			map[string]llm.Model{"down": down(), "silent": silent(), "up": spoken()},
			"chain/one",
		},
		"itself once more": {
			"{name: test/slow, hedge: {after: 10ms}}",
			map[string]llm.Model{"slow": scripted.New(scripted.Reply{Wait: make(chan struct{})}, scripted.Say("here"))},
			"scripted/model",
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer, name := askModel(t, c.declared, c.models)
			require.Equal(t, "here", answer)
			require.Equal(t, c.name, name)
		})
	}
}

// Req: CO-10
func TestBuild_ReportsInvalidModels(t *testing.T) {
	for declared, want := range map[string][]string{
		"":       {`agents.yaml:5: model is missing; the prefixes there are: builtin/, test/`},
		"[]":     {`agents.yaml:5: model: the list is empty; name at least one model`},
		"[[up]]": {`agents.yaml:5: model[0]: want the name of a model, or {name: …}, got a list`},
		"\n    - test/up\n    -\n    - test/own\n    - opnai/gpt-5": {
			`agents.yaml:7: model[1] is missing; the prefixes there are: builtin/, test/`,
			`agents.yaml:8: model "test/own" is not in the catalog`,
			`agents.yaml:9: model "opnai/gpt-5": no provider has the prefix "opnai"; there are builtin/, test/`,
		},
		"\n    - {nme: test/up}\n    - {timeout: 5s}\n    - {name: test/up, timeout: 5}\n    - {name: test/up, timeout: -5s}": {
			`agents.yaml:6: unknown field "nme"; did you mean "name"?`,
			`agents.yaml:7: model[1].name is missing; the prefixes there are: builtin/, test/`,
			`agents.yaml:8: timeout: want a duration such as 30s or 5m, got "5"`,
			`agents.yaml:9: model[3].timeout is -5s; use a positive duration, or leave it out`,
		},
		"\n    - {name: test/up, hedge: {model: test/up}}\n    - {name: test/up, hedge: {after: 3s, model: test/no}}\n    - {name: " +
			"test/up, timeout: 3s, hedge: {after: 5s}}\n    - {name: test/up, hedge: {afer: 3s}}": {
			`agents.yaml:6: model[0].hedge.after is 0s; say how long the model may say nothing before it is asked a second time, such as 3s`,
			`agents.yaml:7: model "test/no" is not in the catalog`,
			`agents.yaml:8: model[2].hedge.after is 5s, and the timeout 3s; use a shorter time, otherwise no second request is sent`,
			`agents.yaml:9: unknown field "hedge.afer"; did you mean "after"?`,
		},
	} {
		_, err := spec.Build(t.Context(), agentFolder("  model: "+declared+"\n"), "", spec.Dependencies{
			Models: modelProviders(t, modelCatalog(map[string]llm.Model{"up": scripted.New()})), Tools: builtin.Catalog{},
		})
		require.Error(t, err)
		require.Empty(t, cmp.Diff(want, strings.Split(err.Error(), "\n")))
	}
}

// The examples on the documentation page about models work.
func TestBuild_ModelExamplesOfTheDocsWork(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/models.md")
	require.NoError(t, err)
	blocks := strings.Split(string(page), "```yaml\n")[1:]
	require.Len(t, blocks, 2)
	anyModel := func(prefix string) llm.Provider {
		return llm.Provider{Prefix: prefix, Open: func(string) (llm.Model, error) { return scripted.New(), nil }}
	}
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		declared := "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
		_, err := spec.Build(t.Context(), agentFolder(declared), "",
			spec.Dependencies{Models: modelProviders(t, anyModel("openai"), anyModel("anthropic")), Tools: builtin.Catalog{}})
		require.NoError(t, err, text)
	}
}
