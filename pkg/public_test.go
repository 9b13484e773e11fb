package pkg_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// publicPackages lists the packages that authors of agents, clients and plug-ins import, each with the reason. All
// other packages are internal. A package is public if an author calls it, or if the signature of a public function
// names its types.
var publicPackages = []struct{ path, reason string }{
	{"pkg/agent", "defines agents, and runs one step"},
	{"pkg/agent/agenttest", "tests an agent without a mesh"},
	{"pkg/agent/flow", "makes agents of agents: sequence, parallel, repeat, and an agent as a tool"},
	{"pkg/agent/local", "runs sessions with an agent in a program without a mesh"},
	{"pkg/budget", "limits and usage that a step carries"},
	{"pkg/client", "the Go client of an orchestrator"},
	{"pkg/conversation", "the messages that agents, models and stores exchange"},
	{"pkg/event", "what an agent reports while it works"},
	{"pkg/execution", "what an agent is given for a step, and what it returns"},
	{"pkg/failure", "errors with modes, which every package returns"},
	{"pkg/gen/troupe/v1", "the generated gRPC API, for clients and for workers without the SDK"},
	{"pkg/hook", "handlers and plugins around the calls of models and tools"},
	{"pkg/llm", "the contract of models and providers"},
	{"pkg/llm/anthropic", "provider: the models of Anthropic"},
	{"pkg/llm/extractive", "provider: a model that quotes documents and needs no key, to try and to test with"},
	{"pkg/llm/gemini", "provider: the models of Google"},
	{"pkg/llm/llmtest", "the suite that every provider passes"},
	{"pkg/llm/openai", "provider: the models of OpenAI, and of servers with its API"},
	{"pkg/llm/scripted", "a model that follows a script, for tests"},
	{"pkg/memory", "the contract of stores"},
	{"pkg/memory/inmem", "a store in RAM, for tests and for sessions in process"},
	{"pkg/memory/memorytest", "the suite that every store passes"},
	{"pkg/ownership", "state by owner, and configuration, as handlers read and write them"},
	{"pkg/plugin", "small plugins: context watch, rate limit, reflection and tool log"},
	{"pkg/plugin/approval", "plugin: asks a person before a tool runs"},
	{"pkg/plugin/compaction", "plugin: shortens long conversations"},
	{"pkg/plugin/guardrails", "plugin: checks inputs and outputs"},
	{"pkg/plugin/trust", "plugin: decides which clients an agent serves"},
	{"pkg/secret", "texts that are never printed; credentials and API keys have its type"},
	{"pkg/session", "sessions and turns, as stores keep them"},
	{"pkg/tool", "the contract of tools, and tools from Go functions"},
	{"pkg/tool/mcptool", "tools of MCP servers"},
	{"pkg/worker", "hosts an agent as a worker of the mesh"},
}

// The limits of the public packages, without generated code. As in `go doc -short`, a group of constants or
// variables counts as one name.
const (
	maxPublicPackages = 32
	maxPublicNames    = 500
)

func TestPublic_PackagesAreListed(t *testing.T) {
	var listed, found []string
	for _, p := range publicPackages {
		if p.reason == "" {
			t.Errorf("%s has no reason", p.path)
		}
		listed = append(listed, p.path)
	}
	for dir := range publicFiles(t) {
		found = append(found, dir)
	}
	found = append(found, "pkg/gen/troupe/v1")
	slices.Sort(found)
	if !slices.Equal(listed, found) {
		t.Errorf("pkg/ has\n%s\nand the list of public packages\n%s\nmove a package to internal/, or list it with a reason, in order", strings.Join(found,
			"\n"), strings.Join(listed, "\n"))
	}
	names := 0
	for _, files := range publicFiles(t) {
		for _, file := range files {
			names += exportedNames(file)
		}
	}
	if n := len(publicPackages) - 1; n > maxPublicPackages || names > maxPublicNames {
		t.Errorf("%d public packages with %d exported names; at most %d with %d", n, names, maxPublicPackages, maxPublicNames)
	}
}

// TestPublic_NeedsNoInternalType checks the exported declarations of public packages. None may name a type of
// internal/ without a public alias, because authors could not write such a type.
func TestPublic_NeedsNoInternalType(t *testing.T) {
	found, aliases := map[string]string{}, aliasedTypes(t)
	for dir, files := range publicFiles(t) {
		for _, file := range files {
			local := importedFolders(file)
			exportedTypes(file, func(name string, e ast.Expr) {
				ast.Inspect(e, func(n ast.Node) bool {
					s, ok := n.(*ast.SelectorExpr)
					if !ok {
						return true
					}
					id, ok := s.X.(*ast.Ident)
					if !ok || !strings.HasPrefix(local[id.Name], "internal/") {
						return true
					}
					if needed := local[id.Name] + "." + s.Sel.Name; !aliases[needed] {
						found[dir+"."+name] = needed
					}
					return true
				})
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		t.Errorf("%s needs %s, which no author can name; use a public type", name, found[name])
	}
}

// aliasedTypes returns the types of internal/ for which a public package has an alias.
func aliasedTypes(t *testing.T) map[string]bool {
	t.Helper()
	aliases := map[string]bool{}
	for _, files := range publicFiles(t) {
		for _, file := range files {
			local := importedFolders(file)
			ast.Inspect(file, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok || !spec.Assign.IsValid() || !spec.Name.IsExported() {
					return true
				}
				if s, ok := spec.Type.(*ast.SelectorExpr); ok {
					if id, ok := s.X.(*ast.Ident); ok {
						aliases[local[id.Name]+"."+s.Sel.Name] = true
					}
				}
				return true
			})
		}
	}
	return aliases
}

// publicFiles parses the files of pkg/, without generated code and tests, and returns them by folder.
func publicFiles(t *testing.T) map[string][]*ast.File {
	t.Helper()
	all := map[string][]*ast.File{}
	fset := token.NewFileSet()
	for _, path := range goFiles(t) {
		dir := filepath.ToSlash(filepath.Dir(path))
		if !isWithin(dir, "pkg") || strings.Contains(dir, "/internal") || strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		all[dir] = append(all[dir], file)
	}
	return all
}

// exportedNames returns the number of exported top-level names in a file.
func exportedNames(file *ast.File) (n int) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.IsExported() {
				n++
			}
		case *ast.GenDecl:
			group := false
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						n++
					}
				case *ast.ValueSpec:
					group = group || slices.ContainsFunc(s.Names, (*ast.Ident).IsExported)
				}
			}
			if group {
				n++
			}
		}
	}
	return n
}

// exportedTypes calls visit for each type expression in an exported declaration of a file. These are the
// parameters and results of functions and methods, exported fields, and declared types.
func exportedTypes(file *ast.File, visit func(name string, e ast.Expr)) {
	fields := func(name string, list *ast.FieldList) {
		if list == nil {
			return
		}
		for _, f := range list.List {
			visit(name, f.Type)
		}
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				on := receiverName(d.Recv.List[0].Type)
				if !ast.IsExported(on) {
					continue
				}
				name = on + "." + name
			}
			if d.Name.IsExported() {
				fields(name, d.Type.Params)
				fields(name, d.Type.Results)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if !s.Name.IsExported() {
						continue
					}
					st, ok := s.Type.(*ast.StructType)
					if !ok {
						visit(s.Name.Name, s.Type)
						continue
					}
					for _, f := range st.Fields.List {
						for _, id := range f.Names {
							if id.IsExported() {
								visit(s.Name.Name+"."+id.Name, f.Type)
							}
						}
						if len(f.Names) == 0 && ast.IsExported(embeddedFieldName(f.Type)) {
							visit(s.Name.Name+"."+embeddedFieldName(f.Type), f.Type)
						}
					}
				case *ast.ValueSpec:
					if s.Type != nil && slices.ContainsFunc(s.Names, (*ast.Ident).IsExported) {
						visit(s.Names[0].Name, s.Type)
					}
				}
			}
		}
	}
}

// embeddedFieldName returns the name of an embedded field.
func embeddedFieldName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return embeddedFieldName(e.X)
	case *ast.IndexExpr:
		return embeddedFieldName(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}
