package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/conformance"
	memory "github.com/troupe-dev/troupe/services/memory/app"
	orchestrator "github.com/troupe-dev/troupe/services/orchestrator/app"
	worker "github.com/troupe-dev/troupe/services/worker/app"
)

// The pages state the right number of conformance checks. (Decision records state the number at their time.)
func TestPages_StateTheNumberOfConformanceChecks(t *testing.T) {
	want, counted := strconv.Itoa(len(conformance.Checks())), 0
	for _, page := range pagePaths(t) {
		if strings.HasPrefix(page, "docs/adr/") {
			continue
		}
		for _, found := range regexp.MustCompile(`(\d\d+) checks\b`).FindAllStringSubmatch(readPage(t, page), -1) {
			require.Equal(t, want, found[1], page)
			counted++
		}
	}
	require.Greater(t, counted, 2, "the test no longer finds the counts")
}

// The track record has a row for every bug that the chaos suite plants, and no other row.
func TestTrackRecord_ListsEveryPlantedBug(t *testing.T) {
	listed := regexp.MustCompile(`(?m)^\| (B\d+) \|`).FindAllStringSubmatch(section(t, "docs/robustness-track-record.md", "Planted bugs"), -1)
	source, err := os.ReadFile(filepath.Join(repositoryRoot, "test/chaos/bugs.go"))
	require.NoError(t, err)
	planted := regexp.MustCompile(`"(B\d+)"`).FindAllStringSubmatch(string(source), -1)
	require.NotEmpty(t, planted)
	require.Equal(t, sortedFirstGroups(planted), sortedFirstGroups(listed))
}

// sortedFirstGroups returns the text of the first group of each match, sorted and without duplicates.
func sortedFirstGroups(found [][]string) (words []string) {
	for _, f := range found {
		words = append(words, f[1])
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// The settings page gives the variable and the default of each flag as the programs define them.
func TestSettings_HaveTheVariablesAndDefaultsOfThePrograms(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| `([A-Z_]+)` \\| `([^`]+)` \\|")
	titles := map[string]string{
		"orchestrator": "Settings of the orchestrator", "memory": "Settings of the memory service", "worker": "Settings of a worker",
	}
	compared := 0
	for name, cfg := range map[string]any{"orchestrator": &orchestrator.Config{}, "memory": &memory.Config{}, "worker": &worker.Config{}} {
		parser, err := kong.New(cfg)
		require.NoError(t, err)
		for _, title := range []string{"Settings of every program", titles[name]} {
			for _, found := range row.FindAllStringSubmatch(section(t, "docs/settings.md", title), -1) {
				i := slices.IndexFunc(parser.Model.Flags, func(f *kong.Flag) bool { return f.Name == found[1] })
				if i < 0 {
					continue // of another program; TestSettings_ListEveryFlag knows
				}
				f := parser.Model.Flags[i]
				require.Equal(t, found[2], f.Envs[0], "%s --%s", name, f.Name)
				require.Equal(t, f.Default, found[3], "%s --%s", name, f.Name)
				compared++
			}
		}
	}
	require.Greater(t, compared, 15, "the test no longer finds the rows")
}
