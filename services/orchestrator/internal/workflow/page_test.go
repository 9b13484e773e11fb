package workflow

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/balance"
)

// page is what authors of workflows read of how instances are chosen.
const page = "../../../../docs/routing.md"

var (
	part   = regexp.MustCompile("(?s)\n### (\\w+)\n(.*?)\n```yaml\n(.*?)```\n")
	wrongs = regexp.MustCompile(`(?m)^w\.yaml:10: .*$`)
)

// Each strategy has a part on the page, with an example that does what it says.
func TestPage_HasAnExampleOfEveryStrategy(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var shown []balance.Strategy
	for _, found := range part.FindAllStringSubmatch(string(text), -1) {
		steps := "    " + strings.ReplaceAll(strings.TrimSpace(found[3]), "\n", "\n    ")
		set, err := load(t, "  entry: research\n  steps:\n"+steps+"\n    synthesis: {agent: synthesis, end: true}\n")
		require.NoError(t, err, found[1])
		flow, _ := set.Find("w")
		require.EqualValues(t, found[1], flow.Steps["research"].Instances.Strategy)
		shown = append(shown, flow.Steps["research"].Instances.Strategy)
	}
	require.Equal(t, balance.Strategies(), shown)
}

// The errors on the page are those that one gets.
func TestPage_QuotesErrorsAsTheyAre(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var got strings.Builder
	for _, declared := range []string{
		"{strategy: weigted}", "{strategy: weighted, weights: {v1: 60, v2: 50}}", "{weights: {v2: 10}}",
	} {
		_, err := load(t, "  entry: a\n  steps:\n    a:\n      agent: x\n      end: true\n      instances: "+declared+"\n")
		got.WriteString(err.Error() + "\n")
	}
	lines := wrongs.FindAllString(string(text), -1)
	require.Len(t, lines, 3)
	for _, line := range lines {
		require.Contains(t, got.String(), line+"\n")
	}
}
