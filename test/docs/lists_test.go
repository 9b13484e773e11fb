package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	memory "github.com/troupe-dev/troupe/services/memory/app"
	orchestrator "github.com/troupe-dev/troupe/services/orchestrator/app"
	worker "github.com/troupe-dev/troupe/services/worker/app"
)

// The settings page lists every flag of the three services, and no other flag.
func TestSettings_ListEveryFlag(t *testing.T) {
	documented := map[string]bool{}
	for _, found := range regexp.MustCompile("`--([a-z-]+)`").FindAllStringSubmatch(serviceSettings(t), -1) {
		documented[found[1]] = true
	}
	for name, cfg := range map[string]any{"orchestrator": &orchestrator.Config{}, "memory": &memory.Config{}, "worker": &worker.Config{}} {
		parser, err := kong.New(cfg)
		require.NoError(t, err)
		for _, f := range parser.Model.Flags {
			if f.Name == "help" || f.Hidden {
				continue
			}
			require.Contains(t, serviceSettings(t), "`--"+f.Name+"`", name)
			delete(documented, f.Name)
		}
	}
	delete(documented, "help")
	delete(documented, "version")
	require.Empty(t, slices.Sorted(maps.Keys(documented)), "flags that no service has")
}

// serviceSettings returns the part of the settings page about services, without the part about the command line.
func serviceSettings(t *testing.T) string {
	t.Helper()
	text, _, ok := strings.Cut(readPage(t, "docs/settings.md"), "## Settings of troupe")
	require.True(t, ok)
	return text
}

// The API page lists every service with all of its methods.
func TestAPI_ListsEveryMethod(t *testing.T) {
	rows := map[string]string{}
	for line := range strings.Lines(section(t, "docs/api.md", "Services and methods")) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| `") && len(cells) == 4 {
			rows[backquoted.FindStringSubmatch(cells[0])[1]] = cells[3]
		}
	}
	word := regexp.MustCompile(`\b[A-Z][A-Za-z]+\b`)
	files := []protoreflect.FileDescriptor{
		troupev1.File_troupe_v1_orchestrator_proto, troupev1.File_troupe_v1_session_proto, troupev1.File_troupe_v1_memory_proto,
		troupev1.File_troupe_v1_agent_proto, troupev1.File_troupe_v1_lifecycle_proto, troupev1.File_troupe_v1_conformance_proto,
	}
	for _, f := range files {
		for i := range f.Services().Len() {
			service := f.Services().Get(i)
			row, ok := rows[string(service.Name())]
			require.True(t, ok, "%s has no row", service.Name())
			delete(rows, string(service.Name()))
			var methods []string
			for j := range service.Methods().Len() {
				methods = append(methods, string(service.Methods().Get(j).Name()))
			}
			require.ElementsMatch(t, methods, word.FindAllString(row, -1), service.Name())
		}
	}
	delete(rows, grpc_health_v1.Health_ServiceDesc.ServiceName)
	require.Empty(t, rows, "services that there are not")
}

// The errors page lists every failure mode with its gRPC code and whether a retry may succeed.
func TestErrors_ListEveryMode(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\| ([A-Z_]+)( \*)? \| ([A-Z_]+) \| (yes|no|never) \|`)
	listed := map[string][]string{}
	for _, found := range row.FindAllStringSubmatch(readPage(t, "docs/errors.md"), -1) {
		listed[found[1]] = found[3:]
	}
	for _, mode := range failure.Modes() {
		name, again := mode.Reason(), "no"
		switch {
		case mode == failure.Unknown:
			name = "UNSPECIFIED"
		case mode.Retryable():
			again = "yes"
		case mode.Terminal():
			again = "never"
		}
		require.Equal(t, []string{wireCode(status.Code(grpcfailure.ToStatus(failure.New(mode, "docs", "said"))).String()), again}, listed[name], name)
		delete(listed, name)
	}
	require.Empty(t, listed, "modes that there are not")
}

// wireCode converts the Go name of a gRPC code, such as NotFound, to its wire name, such as NOT_FOUND.
func wireCode(name string) string {
	if name == "Canceled" {
		return "CANCELLED"
	}
	return strings.ToUpper(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(name, "${1}_$2"))
}

// The events page lists every event payload, and no other.
func TestEvents_ListEveryPayload(t *testing.T) {
	listed := firstCells(section(t, "docs/events.md", "Payloads"))
	fields := (&troupev1.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("payload").Fields()
	for i := range fields.Len() {
		name := string(fields.Get(i).Name())
		require.True(t, listed[name], "%s has no row", name)
		delete(listed, name)
	}
	require.Empty(t, listed, "payloads that there are not")
}

// The metrics page lists every metric of the mesh, and no other.
func TestMetrics_ListEveryMetric(t *testing.T) {
	listed := map[string]bool{}
	for name := range firstCells(section(t, "docs/metrics.md", "Metrics")) {
		if name, _, _ = strings.Cut(name, "{"); strings.HasPrefix(name, "troupe_") {
			listed[strings.TrimSuffix(strings.TrimSuffix(name, "_total"), "_seconds")] = true
		}
	}
	made := metricNames(t)
	require.Greater(t, len(made), 20, "the test no longer finds the metrics of the code")
	require.Equal(t, slices.Sorted(maps.Keys(made)), slices.Sorted(maps.Keys(listed)))
}

// metricNames returns the names of the metrics that the code creates. A name is the first argument of a meter
// call, or of a local function that passes it to a meter.
func metricNames(t *testing.T) map[string]bool {
	t.Helper()
	makes := regexp.MustCompile(`^((Int|Float)64(Observable)?(Counter|Histogram|Gauge|UpDownCounter)|counter)$`)
	names := map[string]bool{}
	for _, folder := range []string{"internal", "pkg", "services"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(repositoryRoot, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 || !makes.MatchString(calleeName(call)) {
					return true
				}
				if name, ok := call.Args[0].(*ast.BasicLit); ok && name.Kind == token.STRING {
					text, _ := strconv.Unquote(name.Value)
					names[strings.ReplaceAll(text, ".", "_")] = strings.HasPrefix(text, "troupe.")
				}
				return true
			})
			return nil
		}))
	}
	return names
}

// calleeName returns the name of the function or method that an expression calls.
func calleeName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}
