//go:build docs

package docs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	shapePattern      = regexp.MustCompile("(?s)\n### ([A-Z][a-z ]+)\n\nTo .*?\n```yaml\n(.*?)```\n")
	shapeAgentPattern = regexp.MustCompile(`agent: ([a-z]+)|agents: \[([a-z, ]+)\]`)
)

const document = "---\napiVersion: troupe.dev/v1\nkind: %s\nmetadata: {name: %s}\nspec:\n%s\n"

// runWorkflowShapes sends a request to each workflow shape on the workflows page. The agents of these workflows
// quote documents.
func (e *sharedEnvironment) runWorkflowShapes(t *testing.T) {
	t.Helper()
	shapes := shapePattern.FindAllStringSubmatch(readPage(t, "docs/workflows.md"), -1)
	require.Len(t, shapes, 8)
	for _, found := range shapes {
		t.Run(found[1], func(t *testing.T) {
			t.Parallel()
			entry, _, _ := strings.Cut(found[2], ":")
			steps := "    " + strings.ReplaceAll(strings.TrimSpace(found[2]), "\n", "\n    ")
			var all strings.Builder
			fmt.Fprintf(&all, document, "Workflow", "shape", "  entry: "+entry+"\n  steps:\n"+steps)
			fmt.Fprintf(&all, document, "Workflow", "search", "  entry: find\n  steps:\n    find: {agent: research, end: true}")
			declared := map[string]bool{}
			for _, match := range shapeAgentPattern.FindAllStringSubmatch(found[2]+" agent: research", -1) {
				for name := range strings.SplitSeq(match[1]+match[2], ", ") {
					if !declared[name] {
						fmt.Fprintf(&all, document, "Agent", name, shapeSpec)
					}
					declared[name] = true
				}
			}
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(all.String()), 0o600))

			ctx, cancel := context.WithTimeout(t.Context(), pageTimeout)
			defer cancel()
			cmd := exec.CommandContext(ctx, filepath.Join(e.binFolder, "troupe"), "dev", "--agents", dir, "--data-dir", filepath.Join(dir, "data"),
				"--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--target", "shape", "--ask", "What may an agent write?")
			cmd.Dir, cmd.Env = e.root, e.env
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
}

// shapeSpec is the spec of an agent that needs no API key and has the capabilities that the page requires.
const shapeSpec = "  model: builtin/extractive\n  capabilities: [german]\n  tools:\n    - builtin: search_documents\n      with: {path: docs}\n      capabilities: [docs]"
