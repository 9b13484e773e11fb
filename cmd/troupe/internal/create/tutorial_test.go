package create

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/services/standalone/testrun"
)

// pagePath is the path of the tutorial for authors of agents.
const pagePath = "../../../../docs/write-an-agent.md"

var (
	snippetPattern  = regexp.MustCompile("(?s)```(yaml|go)\n(.*?)```")
	commandPattern  = regexp.MustCompile(`(?m)^troupe new agent (\S+)( --go)?`)
	openingPattern  = regexp.MustCompile(`(?s)\tmodel, err := .*?newAgent\(model\)\)\)\n`)
	fieldRowPattern = regexp.MustCompile("(?m)^\\| `([a-zA-Z.\\[\\]]+)` \\|")
)

// Each code block of the tutorial appears in a file that the commands of the tutorial create.
func TestTutorial_CodeBlocksMatchCreatedFiles(t *testing.T) {
	text, err := os.ReadFile(pagePath)
	require.NoError(t, err)
	var sources strings.Builder
	commands := commandPattern.FindAllStringSubmatch(string(text), -1)
	require.Len(t, commands, 2)
	for _, c := range commands {
		dir := filepath.Join(t.TempDir(), c[1])
		args := []string{"new", "agent", c[1], "--dir", dir}
		if c[2] != "" {
			args = append(args, "--go", "--replace", repositoryRoot(t))
		}
		require.Zero(t, run(t.Context(), args, console.Terminal{Out: io.Discard, Err: io.Discard}))
		require.NoError(t, filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			written, err := os.ReadFile(name)
			sources.Write(written)
			return err
		}))
	}
	quotes := snippetPattern.FindAllStringSubmatch(string(text), -1)
	require.Len(t, quotes, 6)
	for _, q := range quotes {
		require.Contains(t, sources.String(), q[2])
	}
}

// The Go code in the tutorial that opens a language model compiles, so readers can copy it.
func TestTutorial_LanguageModelCodeCompiles(t *testing.T) {
	text, err := os.ReadFile(pagePath)
	require.NoError(t, err)
	opens := openingPattern.FindString(string(text))
	require.NotEmpty(t, opens)
	dir := filepath.Join(t.TempDir(), "guide")
	writeAgent(t, "--go", "--dir", dir, "--replace", repositoryRoot(t))
	name := filepath.Join(dir, "main.go")
	program, err := os.ReadFile(name)
	require.NoError(t, err)
	changed := strings.NewReplacer(
		"pkg/llm/extractive", "pkg/llm/anthropic",
		"\tos.Exit(worker.Main(newAgent(extractive.New())))\n", opens).Replace(string(program))
	require.NotContains(t, changed, "extractive")
	require.NoError(t, os.WriteFile(name, []byte(changed), 0o600))
	t.Setenv("GOPROXY", "off")
	goCommand(t, dir, "vet", ".")
}

// The table of test fields in the tutorial lists every YAML field and no others.
func TestTutorial_ListsEveryTestField(t *testing.T) {
	text, err := os.ReadFile(pagePath)
	require.NoError(t, err)
	var listed []string
	for _, f := range fieldRowPattern.FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, f[1])
	}
	require.ElementsMatch(t, append(
		yamlFields[testrun.Turn]("turns[].", "want"),
		append(yamlFields[testrun.Want]("turns[].want."), append(yamlFields[testrun.Test]("", "turns", "model"), "model[]")...)...), listed)
}

// yamlFields returns the YAML names of a struct's fields, except the given ones.
func yamlFields[T any](prefix string, without ...string) (all []string) {
	for f := range reflect.TypeFor[T]().Fields() {
		name := f.Tag.Get("yaml")
		if !strings.Contains(" "+strings.Join(without, " ")+" ", " "+name+" ") {
			all = append(all, prefix+name)
		}
	}
	return all
}
