package create

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/process"
)

// writeAgent runs `troupe new agent` with args and returns its output.
func writeAgent(t *testing.T, args ...string) string {
	t.Helper()
	var out, told bytes.Buffer
	code := run(t.Context(), append([]string{"new", "agent", "hours"}, args...), console.Terminal{Out: &out, Err: &told})
	require.Equal(t, process.ExitOK, code, told.String())
	return out.String()
}

// goCommand runs `go` with args in a folder and returns its output.
func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "go %v: %s", args, out)
	return string(out)
}

func repositoryRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../../../..")
	require.NoError(t, err)
	return root
}

func TestNewAgent_GoModulePassesItsTests(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hours")
	said := writeAgent(t, "--go", "--dir", dir, "--replace", repositoryRoot(t))
	require.Contains(t, said, "hours\n  go test .\n", "nothing has to be downloaded first")
	t.Setenv("GOPROXY", "off")
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(readme), "```sh\ngo test .")
	ignored, err := os.ReadFile(filepath.Join(dir, ".gitignore"))
	require.NoError(t, err)
	require.Equal(t, ".troupe/\n", string(ignored), "what a mesh that is started there keeps is not for a commit")
	goCommand(t, dir, "vet", ".")
	require.Contains(t, goCommand(t, dir, "test", "-v", "."), "PASS: TestAgent_LooksItUp")
	require.Empty(t, goCommand(t, dir, "fmt", "."), "it is formatted")
}

func TestNewAgent_GoPackageInsideAModulePassesItsTests(t *testing.T) {
	parent, err := os.MkdirTemp(".", "testdata-") //nolint:usetesting // it must be inside the module
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(parent)) })
	dir := filepath.Join(parent, "hours")
	said := writeAgent(t, "--go", "--dir", dir)
	require.NotContains(t, said, "go.mod")
	require.NotContains(t, said, "go get")
	require.Contains(t, goCommand(t, dir, "test", "-v", "."), "PASS: TestAgent_KeepsSecrets")
}

// Inside a Go module that does not require Troupe, the command creates a package and says how to add the
// requirement.
func TestNewAgent_PrintsMissingRequirement(t *testing.T) {
	module := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(module, "go.mod"), []byte("module example.com/shop\n"), 0o600))
	said := writeAgent(t, "--go", "--dir", filepath.Join(module, "agents", "hours"))
	require.Contains(t, said, "  go get github.com/troupe-dev/troupe@latest\n")
	require.NoFileExists(t, filepath.Join(module, "agents", "hours", "go.mod"))
	readme, err := os.ReadFile(filepath.Join(module, "agents", "hours", "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(readme), "```sh\ngo get github.com/troupe-dev/troupe@latest\ngo test .")

	var told bytes.Buffer
	code := run(t.Context(), []string{
		"new", "agent", "rain", "--go", "--dir", filepath.Join(module, "rain"), "--replace",
		repositoryRoot(t),
	}, console.Terminal{Out: &told, Err: &told})
	require.Equal(t, process.ExitUsage, code)
	require.Contains(t, told.String(), "is within the Go module of "+filepath.Join(module, "go.mod"))
}

func TestReleasedVersion_RejectsLocalBuilds(t *testing.T) {
	for v, ok := range map[string]bool{
		"v1.2.3": true, "v0.0.0-20261121123456-0123456789ab": true, "v1.0.0-rc.1": true,
		"(devel)": false, "": false, "unknown": false, "v0.0.0-20261121123456-0123456789ab+dirty": false,
	} {
		got, err := releasedVersion(v)
		if ok {
			require.NoError(t, err)
			require.Equal(t, v, got)
		} else {
			require.ErrorContains(t, err, "name its folder with --replace DIR", v)
		}
	}
}

// The user may replace the tool of a new agent, so its prompt does not name the tool.
func TestAgent_PromptNamesNoTool(t *testing.T) {
	prompt, err := templates.ReadFile("templates/yaml/prompt.md.tmpl")
	require.NoError(t, err)
	require.NotContains(t, string(prompt), "search_documents")
}
