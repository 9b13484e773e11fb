package manifest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/troupe-dev/troupe/internal/manifest"
)

const manifestHeader = "apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: a}\n"

func folder(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

type spec struct {
	Model  string           `yaml:"model"`
	Tools  []item           `yaml:"tools"`
	Limits limits           `yaml:"limits"`
	Steps  map[string]*item `yaml:"steps"`
	Wait   time.Duration    `yaml:"wait"`
	On     bool             `yaml:"on"`
}

type item struct {
	Name string    `yaml:"name"`
	With yaml.Node `yaml:"with"`
}

type limits struct {
	Calls  int     `yaml:"calls"`
	Factor float64 `yaml:"factor"`
}

func lines(err error) []string { return strings.Split(err.Error(), "\n") }

func TestLoad_ReadsAllDocumentsOfTheRoot(t *testing.T) {
	docs, err := manifest.Load(folder(map[string]string{
		"a.yaml":     "---\n" + manifestHeader + "spec: {model: x}\n---\n# nothing\n---\napiVersion: troupe.dev/v1\nkind: Workflow\nmetadata:\n  name: a\nspec: {}\n",
		"b.yml":      strings.Replace(manifestHeader, "name: a", "name: b", 1) + "spec: {}\n",
		"c.txt":      "no manifest",
		"sub/d.yaml": "nor: this",
	}))
	require.NoError(t, err)
	var got []string
	for _, d := range docs {
		got = append(got, d.PlaceOf().String()+" "+d.Kind+" "+d.Name)
	}
	require.Equal(t, []string{"a.yaml:2 Agent a", "a.yaml:9 Workflow a", "b.yml:1 Agent b"}, got)
	require.Len(t, manifest.Select(docs, manifest.KindWorkflow), 1)
}

func TestLoad_ReportsAllErrorsOfAFolder(t *testing.T) {
	docs, err := manifest.Load(folder(map[string]string{
		"a.yaml": "apiVersion: troupe.dev/v2\nkind: Agnet\nmetadata:\n  name: A b\nspec: {}\n",
		"b.yaml": "apiVersion: troupe.dev/v1\nkind: Agent\nmetadata:\n  nam: a\nspecs: {}\n",
		"c.yaml": manifestHeader + "spec: {}\n---\n" + manifestHeader + "spec: {}\n",
		"d.yaml": manifestHeader + "spec:\n  - a\n  b: c\n",
		"e.yaml": manifestHeader[:len(manifestHeader)-1] + "\n",
		"f.yaml": strings.Replace(manifestHeader, "name: a", "name: f", 1) + "spec: [a]\n",
		"g.yaml": "just a text\n",
	}))
	require.Len(t, docs, 2)
	want := []string{
		`a.yaml:1: apiVersion is "troupe.dev/v2"; want "troupe.dev/v1"`,
		`a.yaml:2: unknown kind "Agnet"; did you mean "Agent"?`,
		`a.yaml:4: metadata.name is "A b": use a-z, 0-9 and hyphens, at most 63 characters, no hyphen at the ends`,
		`b.yaml:4: unknown field "metadata.nam"; did you mean "name"?`,
		`b.yaml:5: unknown field "specs"; did you mean "spec"?`,
		`d.yaml:4: this is not YAML: did not find expected '-' indicator`,
		`e.yaml:1: spec is missing`,
		`f.yaml:4: spec: want fields, got a list`,
		`g.yaml:1: document: want fields, got "just a text"; there are apiVersion, kind, metadata, spec`,
		`c.yaml:6: Agent "a" is declared before, at c.yaml:1`,
	}
	require.Empty(t, cmp.Diff(want, lines(err)))
}

func TestLoad_ExplainsAnEmptyFolder(t *testing.T) {
	_, err := manifest.Load(folder(nil))
	require.ErrorContains(t, err, "put a *.yaml file with apiVersion: troupe.dev/v1 and kind: Agent or Workflow into it")
}

func load(t *testing.T, text string) manifest.Document {
	t.Helper()
	docs, err := manifest.Load(folder(map[string]string{"a.yaml": manifestHeader + text}))
	require.NoError(t, err)
	require.Len(t, docs, 1)
	return docs[0]
}

func TestDocument_DecodesItsSpec(t *testing.T) {
	doc := load(t, `spec:
  model: 1.5
  tools: [{name: a, with: {calls: 3}}, &b {name: b}]
  limits: {calls: 2, factor: 1}
  steps: {x: *b}
  wait: 30s
  on: true
`)
	got := spec{Model: "kept where nothing is said"}
	require.NoError(t, doc.Decode(&got))
	require.Equal(t, "1.5", got.Model)
	require.Len(t, got.Tools, 2)
	require.Equal(t, limits{2, 1}, got.Limits)
	require.Equal(t, "b", got.Steps["x"].Name)
	require.Equal(t, 30*time.Second, got.Wait)
	require.True(t, got.On)

	with := limits{Factor: 7}
	require.NoError(t, doc.Decode(&with, "tools", 0, "with"))
	require.Equal(t, limits{3, 7}, with)
	require.NoError(t, doc.Decode(&with, "tools", 1, "with"), "a part that is not there")
	require.Equal(t, limits{3, 7}, with)
}

func TestDocument_ReportsAllMismatches(t *testing.T) {
	doc := load(t, `spec:
  modl: x
  model: [x]
  tools:
    - name: yes
      wth: {}
    - just text
  limits: {calls: many, factor: much}
  limits: {calls: 1.5}
  steps:
    x: {nothing: 1}
  wait: 30
  on: 1
`)
	want := []string{
		`a.yaml:12: "limits" occurs twice; first in line 11`,
		`a.yaml:5: unknown field "modl"; did you mean "model"?`,
		`a.yaml:6: model: want a text, got a list`,
		`a.yaml:9: unknown field "tools[0].wth"; did you mean "with"?`,
		`a.yaml:10: tools[1]: want fields, got "just text"; there are name, with`,
		`a.yaml:11: limits.calls: want a whole number, got "many"`,
		`a.yaml:11: limits.factor: want a number, got "much"`,
		`a.yaml:12: limits.calls: want a whole number, got "1.5"`,
		`a.yaml:14: unknown field "steps.x.nothing"; there are name, with`,
		`a.yaml:15: wait: want a duration such as 30s or 5m, got "30"`,
		`a.yaml:16: on: want true or false, got "1"`,
	}
	var got spec
	require.Empty(t, cmp.Diff(want, lines(doc.Decode(&got))))
}

func TestDocument_LocatesPartsOfTheSpec(t *testing.T) {
	doc := load(t, "spec:\n  steps:\n    x:\n      routes:\n        - y\n        - z\n")
	err := doc.PlaceOf("steps", "x", "routes", 1).Errorf("step %s routes to unknown step %s", "x", "z")
	require.EqualError(t, err, "a.yaml:9: step x routes to unknown step z")
	require.Equal(t, "a.yaml:6", doc.PlaceOf("steps", "x", "agent").String(), "the nearest part that is there")
	require.Equal(t, "a.yaml:1", doc.PlaceOf().String())
}

func TestDocument_DigestIgnoresNotation(t *testing.T) {
	digest := load(t, "spec: {model: a, limits: {calls: 1}}\n").Digest()
	require.Equal(t, digest, load(t, "# why\nspec:\n  limits:\n    calls: 1 # once\n\n  model: \"a\"\n").Digest())
	require.NotEqual(t, digest, load(t, "spec: {model: a, limits: {calls: 2}}\n").Digest())
	require.NotEqual(t, digest, load(t, "spec: {model: a, limits: {calls: \"1\"}}\n").Digest())
}

func TestDocument_FindsTextsBelowAField(t *testing.T) {
	doc := load(t, "spec:\n  model: m\n  tools: [{name: a, with: {path: x, more: [y, {deep: z}]}}, {name: b, with: w}]\n")
	require.Equal(t, []string{"x", "y", "z", "w"}, doc.FieldTexts("with"))
	require.Empty(t, doc.FieldTexts("without"))
}

func TestCheckName_DescribesValidNames(t *testing.T) {
	for _, name := range []string{"a", "a-1", strings.Repeat("a", 63)} {
		require.NoError(t, manifest.CheckName(name))
	}
	for _, name := range []string{"", "A", "a b", "-a", "a-", "a/b", "..", strings.Repeat("a", 64)} {
		require.ErrorContains(t, manifest.CheckName(name), "use a-z, 0-9 and hyphens", name)
	}
}

func TestNearest_IsEmptyWithoutASimilarWord(t *testing.T) {
	require.Equal(t, "research", manifest.Nearest("Reserch", []string{"coordinator", "research"}))
	require.Empty(t, manifest.Nearest("xyz", []string{"coordinator", "research"}))
	require.Empty(t, manifest.Nearest("ab", []string{"cd"}))
}

// Aliases let a short text stand for endlessly many values. Reading such a text still ends, with an error.
func TestLoad_RejectsEndlessAliases(t *testing.T) {
	bomb := "spec:\n  l0: &l0 [x]\n"
	for n := range 20 {
		bomb += fmt.Sprintf("  l%d: &l%d [*l%d, *l%d]\n", n+1, n+1, n, n)
	}
	wide := "spec: {a: &a [" + strings.Repeat("x,", 1000) + "x], b: [" + strings.Repeat("*a,", 100) + "x]}\n"
	for text, want := range map[string]string{
		bomb:                      "has more than 100000 values, with those that aliases repeat",
		wide:                      "has more than 100000 values, with those that aliases repeat",
		"spec: {a: &a [*a]}\n":    "more than 100 levels deep, or contains itself",
		"spec: {a: &a {b: *a}}\n": "more than 100 levels deep, or contains itself",
		"spec: {a: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "}\n": "more than 100 levels deep",
	} {
		_, err := manifest.Load(folder(map[string]string{"a.yaml": manifestHeader + text}))
		require.ErrorContains(t, err, want)
		require.Regexp(t, `^a\.yaml:\d+: `, err.Error())
	}
}
