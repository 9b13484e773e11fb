// Package outside_test builds a program in another module and checks which modules it compiles. The program
// contains an agent, a tool, a hook, a plugin, a store and a client, and imports only pkg/.
package outside_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// heavyModules lists the modules that no program outside the repository should have to compile.
var heavyModules = []string{
	"go.etcd.io/etcd/server", "github.com/blevesearch/bleve", "sigs.k8s.io/kustomize", "k8s.io", "github.com/alicebob/miniredis",
}

// programPackages lists the packages of the program, and for each the further modules that it must not compile.
var programPackages = map[string][]string{
	"lookup": {"google.golang.org/grpc", "google.golang.org/protobuf", "github.com/troupe-dev/troupe/pkg/gen"},
	"audit":  {"google.golang.org/grpc", "google.golang.org/protobuf", "github.com/troupe-dev/troupe/pkg/gen"},
	"greeter": {
		"google.golang.org/grpc", "google.golang.org/protobuf", "github.com/troupe-dev/troupe/pkg/gen",
		"github.com/troupe-dev/troupe/pkg/agent/local", "github.com/troupe-dev/troupe/internal/recorder", "github.com/troupe-dev/troupe/internal/turnlease",
	},
	"store": {"google.golang.org/grpc", "google.golang.org/protobuf", "github.com/troupe-dev/troupe/pkg/gen"},
	"asker": {"buf.build/go/protovalidate", "github.com/google/cel-go", "cel.dev/expr", "github.com/antlr4-go/antlr"},
}

func TestProgram_CompilesOnlyTheModulesItNeeds(t *testing.T) {
	modfile := goMod(t)
	for part, forbidden := range programPackages {
		deps := strings.Fields(goCommand(t, "list", "-deps", modfile, "./"+part))
		require.Contains(t, deps, "example.org/outside/"+part)
		for _, dep := range deps {
			for _, path := range append(heavyModules, forbidden...) {
				require.False(t, dep == path || strings.HasPrefix(dep, path+"/"), "%s compiles %s", part, dep)
			}
		}
	}
}

func TestProgram_Runs(t *testing.T) {
	modfile := goMod(t)
	require.Equal(t, "called weather\nGood morning, it is sunny.\n", goCommand(t, "run", modfile, "./greeter"))
	goCommand(t, "vet", modfile, "./...")
	goCommand(t, "test", modfile, "./store")
}

// The samples of the founding documents run, written with public packages in another module.
func TestSamples_Run(t *testing.T) {
	out := goCommand(t, "test", goMod(t), "-vet=off", "-count=1", "-v", "./samples")
	for _, name := range []string{
		"TestConnectOnion_AgentWithToolsPluginsAndEvents", "TestConnectOnion_ApprovalByAHandler",
		"TestCugar_ManagedAgent", "TestCugar_FailedStartupReleases",
		"TestADK_Callbacks", "TestADK_RunnerWithPlugin", "TestADK_WorkflowAgents",
		"TestLooopy_AgentAndLoop", "TestLooopy_EndsOfATurn", "TestLangGraph_ResearchAssistant",
	} {
		require.Contains(t, out, "--- PASS: "+name)
	}
}

// goMod returns the flag that selects a go.mod with the requirements of the main module, so that the program
// compiles the same versions.
func goMod(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	text = regexp.MustCompile(`(?m)^module .*$`).ReplaceAll(text, []byte("module example.org/outside"))
	text = regexp.MustCompile(`(?ms)^tool \(.*?^\)$|^tool .*?$|^ignore .*?$`).ReplaceAll(text, nil)
	text = append(text, "\nrequire github.com/troupe-dev/troupe v0.0.0\n\nreplace github.com/troupe-dev/troupe => "+root+"\n"...)
	file := filepath.Join(t.TempDir(), "go.mod")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(file), "go.sum"), sums, 0o600))
	return "-modfile=" + file
}

// goCommand runs the go command in the folder of the program and returns its output.
func goCommand(t *testing.T, verb string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{verb}, args...)...)
	cmd.Dir = "program"
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	require.NoError(t, err, "go %s: %s%s", verb, out, problems.String())
	return string(out)
}
