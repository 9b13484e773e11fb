// Package pkg_test tests that the code follows the architecture.
package pkg_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/troupe-dev/troupe/"

// layers lists the layers of the architecture. A package may import packages of its own layer and of the layers
// above it in this list, but no others. The longest listed prefix of a path decides its layer. Planned folders are
// listed too.
var layers = []struct{ name, packages string }{
	{
		"ground",
		"pkg/gen pkg/failure internal/errortype internal/grpcfailure internal/jitter internal/retry internal/breaker internal/panics internal/storeerror internal/failedturn internal/statechange internal/stepjournal internal/attachment internal/eventstream internal/pendingcall internal/response internal/egress pkg/secret internal/audit internal/broker pkg/ownership internal/lifecycle pkg/session pkg/execution pkg/budget pkg/conversation pkg/event internal/manifest",
	},
	{"contracts", "pkg/llm internal/llmreplay pkg/tool pkg/memory internal/recorder internal/toolrounds internal/chatformat internal/transfer internal/turnlease internal/registry"},
	{
		"sdk",
		"internal/customevent internal/hookerror internal/spans internal/turnstate pkg/hook internal/sidecall internal/summary internal/hookstore internal/loop pkg/agent pkg/plugin internal/sessionlog internal/replay",
	},
	{
		"plumbing",
		"internal/process internal/telemetry internal/probe internal/rpc internal/redisconn internal/wire internal/spending internal/tracelog internal/turnctx internal/identity internal/authz internal/rate",
	},
	{
		"adapters",
		"internal/openaitest internal/anthropictest internal/geminitest pkg/llm/extractive pkg/llm/openai pkg/llm/anthropic pkg/llm/gemini pkg/tool/mcptool internal/memoryrpc internal/registry/etcdregistry internal/worker pkg/worker pkg/client internal/conformance internal/a2a",
	},
	{"services", "services/orchestrator services/memory services/worker agents"},
	{"whole", "services/standalone cmd test examples deploy"},
}

// restrictedImports lists the packages that may directly import a technology or certain internal packages.
var restrictedImports = []struct{ technology, packages string }{
	{"google.golang.org/grpc/status", "internal/grpcfailure pkg/gen"},
	{"google.golang.org/grpc/codes", "internal/grpcfailure pkg/gen"},
	{
		"github.com/redis/go-redis",
		"internal/redisconn services/memory/internal/redisstore services/orchestrator/internal/trace/redistrace services/standalone test",
	},
	{"go.etcd.io/etcd/client", "internal/registry/etcdregistry services/standalone test"},
	{"go.etcd.io/etcd/server", "services/standalone test"},
	{"github.com/alicebob/miniredis", "services/standalone test"},
	{"github.com/a2aproject/a2a-go", "internal/a2a test"},
	{
		module + "pkg/gen",
		"pkg/gen internal/grpcfailure internal/wire internal/spending internal/tracelog internal/authz internal/rate internal/worker pkg/client internal/conformance internal/a2a internal/memoryrpc services cmd test",
	},
	{
		module + "internal/wire",
		"internal/wire internal/memoryrpc internal/spending internal/tracelog internal/worker internal/registry/etcdregistry pkg/client services/memory/internal/api services/memory/internal/redisstore services/orchestrator/internal/api services/orchestrator/internal/coordination services/orchestrator/internal/dispatch services/orchestrator/internal/operate services/orchestrator/internal/replay services/orchestrator/internal/routing services/orchestrator/internal/scope services/orchestrator/internal/turn services/orchestrator/internal/workflow cmd test",
	},
	// so the loop stays stateless
	{
		module + "pkg/memory",
		"pkg/memory internal/hookstore internal/memoryrpc internal/recorder internal/toolrounds internal/chatformat internal/transfer internal/turnlease internal/wire/memorywire internal/worker pkg/agent services test",
	},
	{module + "services/orchestrator", "services/orchestrator services/standalone cmd/troupe/internal/serve test"},
	{module + "services/worker", "services/worker services/standalone cmd/troupe/internal/serve test"},
	{module + "services/memory", "services/memory services/standalone cmd/troupe/internal/serve test"},
	{
		"testing",
		"test cmd/troupe/internal/clitest pkg/memory/memorytest internal/registry/registrytest pkg/llm/llmtest internal/llmreplay internal/audit/audittest internal/wire/wiretest services/orchestrator/internal/trace/tracetest",
	},
}

func TestImports(t *testing.T) {
	for path, imports := range packageImports(t) {
		from := layerIndex(path)
		if from < 0 {
			t.Errorf("%s is in no layer", path)
			continue
		}
		for _, imp := range imports {
			if local, ok := strings.CutPrefix(imp, module); ok && layerIndex(local) > from {
				t.Errorf("%s (%s) imports %s (%s)", path, layers[from].name, local, layers[layerIndex(local)].name)
			}
			for _, c := range restrictedImports {
				if isWithin(imp, c.technology) && !isWithin(path, c.packages) {
					t.Errorf("%s imports %s, which only %s may", path, imp, c.packages)
				}
			}
		}
	}
}

// TestContracts_ImportNoAdapterTechnology checks that a contract is separate from its adapters. A package with a
// test suite for implementations must not import a confined technology.
func TestContracts_ImportNoAdapterTechnology(t *testing.T) {
	imports := packageImports(t)
	contracts := 0
	for path := range imports {
		contract, ok := strings.CutSuffix(path, "test")
		if contract = filepath.ToSlash(filepath.Dir(contract)); !ok || filepath.Base(path) != filepath.Base(contract)+"test" {
			continue
		}
		contracts++
		for _, imp := range imports[contract] {
			for _, c := range restrictedImports {
				if isWithin(imp, c.technology) && !strings.HasPrefix(c.technology, module) {
					t.Errorf("%s is a contract and imports %s; move the adapter to a package of its own", contract, imp)
				}
			}
		}
	}
	if contracts < 3 {
		t.Errorf("found %d contracts; the test no longer sees them", contracts)
	}
}

// layerIndex returns the index of the layer to which a package belongs, or -1.
func layerIndex(path string) int {
	best, length := -1, 0
	for i, l := range layers {
		for p := range strings.FieldsSeq(l.packages) {
			if isWithin(path, p) && len(p) > length {
				best, length = i, len(p)
			}
		}
	}
	return best
}

// isWithin reports whether path is one of the packages or lies in a folder below one of them.
func isWithin(path, packages string) bool {
	for p := range strings.FieldsSeq(packages) {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

// packageImports maps each package of the module to the imports of its non-test files. It reads the files itself
// instead of running `go list`, so that the test cache notices changes.
func packageImports(t *testing.T) map[string][]string {
	t.Helper()
	pkgs := map[string][]string{}
	err := filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "..":
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		src, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(strings.TrimPrefix(file, "../")))
		if _, ok := pkgs[dir]; !ok {
			pkgs[dir] = nil
		}
		for _, imp := range src.Imports {
			pkgs[dir] = append(pkgs[dir], strings.Trim(imp.Path.Value, `"`))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("read sources: %v", err)
	}
	return pkgs
}
