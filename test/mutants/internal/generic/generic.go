// Package generic changes code at random places, as a control: tests that were written for listed mutations might notice
// nothing else.
package generic

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/test/overlay"
)

// Place is one place in the code with its change, and the packages whose tests may notice it, nearest first.
type Place struct {
	What   string // what is changed, such as "negated condition"
	Line   int
	Change overlay.Change
	Tests  []string
}

func (p Place) String() string { return fmt.Sprintf("%s:%d: %s", p.Change.File, p.Line, p.What) }

// edit replaces the bytes [from, to) of a file.
type edit struct {
	what     string
	from, to int
	text     string
}

// Draw returns n places of the code below root, each in another function as far as there are enough.
func Draw(root string, n int, random *rand.Rand) ([]Place, error) {
	files, err := sourceFiles(root)
	if err != nil {
		return nil, err
	}
	tests, err := findTests(root)
	if err != nil {
		return nil, err
	}
	random.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	var places []Place
	for round := 0; len(places) < n && round < n; round++ {
		for _, file := range files {
			if len(places) == n {
				break
			}
			p, ok, err := drawInFile(root, file, random)
			if err != nil {
				return nil, err
			}
			if p.Tests = tests[filepath.ToSlash(filepath.Dir(file))]; ok && len(p.Tests) > 0 {
				places = append(places, p)
			}
		}
	}
	return places, nil
}

// excluded lists folders without code that a mesh runs: tests, suites of contracts, and generated code.
var excluded = []string{
	"pkg/gen", "test", "bench", "examples", "agents", "internal/conformance", "pkg/memory/memorytest", "pkg/llm/llmtest", "pkg/agent/agenttest",
}

func sourceFiles(root string) (files []string, _ error) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			hidden := strings.HasPrefix(d.Name(), ".") && name != "."
			if hidden || d.Name() == "node_modules" || d.Name() == "testdata" || strings.HasSuffix(d.Name(), "test") || slices.Contains(excluded, name) {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			files = append(files, name)
		}
		return nil
	})
	return files, err
}

func drawInFile(root, file string, random *rand.Rand) (Place, bool, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		return Place{}, false, err
	}
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, text, 0)
	if err != nil {
		return Place{}, false, err
	}
	edits := findEdits(fset, tree, text)
	if len(edits) == 0 {
		return Place{}, false, nil
	}
	e := edits[random.IntN(len(edits))]
	changed := slices.Concat(text[:e.from], []byte(e.text), text[e.to:])
	return Place{
		What: e.what, Line: 1 + bytes.Count(text[:e.from], []byte("\n")),
		Change: overlay.Change{File: file, Find: string(text), Replacement: string(changed)},
	}, true, nil
}

// findEdits returns all changes that can be made in the functions of a file: negated conditions, moved constants and dropped
// statements.
func findEdits(fset *token.FileSet, tree *ast.File, text []byte) (edits []edit) {
	add := func(what string, n ast.Node, replacement func(string) string) {
		from, to := fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset
		old := string(text[from:to])
		short, _, _ := strings.Cut(old, "\n")
		edits = append(edits, edit{what + " " + short, from, to, replacement(old)})
	}
	negate := func(cond ast.Expr) {
		if cond != nil {
			add("negated condition", cond, func(old string) string { return "!(" + old + ")" })
		}
	}
	for _, d := range tree.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.IfStmt:
				negate(n.Cond)
			case *ast.ForStmt:
				negate(n.Cond)
			case *ast.BasicLit:
				if v, err := strconv.Atoi(n.Value); err == nil && n.Kind == token.INT {
					add("moved constant", n, func(string) string { return strconv.Itoa(v + 1) })
				}
			case *ast.BlockStmt:
				for _, s := range n.List {
					if canDrop(s) {
						add("dropped statement", s, func(old string) string { return strings.Repeat("\n", strings.Count(old, "\n")) })
					}
				}
			}
			return true
		})
	}
	return edits
}

// canDrop reports whether a function still compiles without the statement, as far as that is seen without types.
func canDrop(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		return !isLogging(s.X)
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	case *ast.IncDecStmt:
		return true
	}
	return false
}

// isLogging reports whether an expression is a call of a logger. Tests do not read most of what is logged.
func isLogging(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, method.Sel.Name)
}
