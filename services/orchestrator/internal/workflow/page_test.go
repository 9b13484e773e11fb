package workflow

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// pagePath is the path of the documentation page about selecting instances.
const pagePath = "../../../../docs/routing.md"

var (
	partPattern      = regexp.MustCompile("(?s)\n### (\\w+)\n(.*?)\n```yaml\n(.*?)```\n")
	errorLinePattern = regexp.MustCompile(`(?m)^w\.yaml:10: .*$`)
)

// Each strategy has a section in docs/routing.md, with an example that declares this strategy.
func TestRoutingPage_HasAnExampleOfEveryStrategy(t *testing.T) {
	text, err := os.ReadFile(pagePath)
	require.NoError(t, err)
	var shown []selection.Strategy
	for _, found := range partPattern.FindAllStringSubmatch(string(text), -1) {
		steps := "    " + strings.ReplaceAll(strings.TrimSpace(found[3]), "\n", "\n    ")
		set, err := loadWorkflow(t, "  entry: research\n  steps:\n"+steps+"\n    synthesis: {agent: synthesis, end: true}\n")
		require.NoError(t, err, found[1])
		flow, _ := set.Find("w")
		require.EqualValues(t, found[1], flow.Steps["research"].Instances.Strategy)
		shown = append(shown, flow.Steps["research"].Instances.Strategy)
	}
	require.Equal(t, selection.Strategies(), shown)
}

// docs/routing.md quotes exactly the errors that Load returns.
func TestRoutingPage_QuotesRealErrors(t *testing.T) {
	text, err := os.ReadFile(pagePath)
	require.NoError(t, err)
	var got strings.Builder
	for _, declared := range []string{
		"{strategy: weigted}", "{strategy: weighted, weights: {v1: 60, v2: 50}}", "{weights: {v2: 10}}",
	} {
		_, err := loadWorkflow(t, "  entry: a\n  steps:\n    a:\n      agent: x\n      end: true\n      instances: "+declared+"\n")
		got.WriteString(err.Error() + "\n")
	}
	lines := errorLinePattern.FindAllString(string(text), -1)
	require.Len(t, lines, 3)
	for _, line := range lines {
		require.Contains(t, got.String(), line+"\n")
	}
}

var shapePattern = regexp.MustCompile("(?s)\n### ([A-Z][a-z ]+)\n\nTo .*?\n```yaml\n(.*?)```\n")

// docs/workflows.md has a section on each shape of a workflow, with an example of that shape that can be loaded.
func TestWorkflowPage_HasAnExampleOfEveryShape(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/workflows.md")
	require.NoError(t, err)
	is := map[string]func(Step) bool{
		"Branches":   func(s Step) bool { return s.Fork == "split" && s.Next == "check" },
		"Conditions": func(s Step) bool { return len(s.Then) == 2 && s.Then[1].When.ConfidenceBelow == 0.5 },
		"Loops":      func(s Step) bool { return s.MaxEntries == 3 && s.Otherwise == "publish" },
		"Failures": func(s Step) bool {
			return s.OnError.Name == "exponential" && s.OnError.Retries == 3 && s.OnError.FirstPause == 2*time.Second
		},
		"Workflows": func(s Step) bool { return s.Name == "ours/find" && s.Fork == "split" && s.Next == "compare" },
		"Planners": func(s Step) bool {
			return s.Plan != nil && s.Plan.MaxTasks == 4 && s.Plan.Parallel && slices.Equal(s.Plan.Agents, []string{"research", "browser"})
		},
		"Handing on":          func(s Step) bool { return s.Name == "billing" && slices.Contains(s.Routes, "support") },
		"Choices by strategy": func(s Step) bool { return s.Name == "law" && slices.Equal(s.Tools.Needs, []string{"docs"}) },
	}
	for _, found := range shapePattern.FindAllStringSubmatch(string(text), -1) {
		steps := "    " + strings.ReplaceAll(strings.TrimSpace(found[2]), "\n", "\n    ")
		entry, _, _ := strings.Cut(found[2], ":")
		set, err := Load(fstest.MapFS{
			"w.yaml":      {Data: []byte(manifestHead + "  entry: " + entry + "\n  steps:\n" + steps + "\n")},
			"search.yaml": {Data: []byte(strings.Replace(manifestHead, "name: w", "name: search", 1) + "  entry: find\n  steps:\n    find: {agent: x, end: true}\n")},
		}, "w")
		require.NoError(t, err, found[1])
		require.Contains(t, is, found[1])
		flow, _ := set.Find("w")
		require.True(t, slices.ContainsFunc(slices.Collect(maps.Values(flow.Steps)), is[found[1]]), found[1])
		delete(is, found[1])
	}
	require.Empty(t, is, "without an example")
}
