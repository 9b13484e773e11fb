package pkg_test

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The limits for code, except generated code and tests.
const (
	maxPackageLines = 1500
	maxFileLines    = 400
	maxFuncLines    = 80
	maxComplexity   = 15
	maxOwnImports   = 20
	maxFields       = 15
	maxMethods      = 25
	maxColumns      = 160
)

// excess is a thing that exceeds a limit, with the name of the limit and the size of the thing.
type excess struct {
	limit, thing string
	size         int
}

// exception allows one thing to exceed one limit up to a size, for a reason. The size is exact. A change that
// makes the thing smaller must lower the size or remove the exception.
type exception struct {
	limit, thing string
	size         int
	reason       string
}

func TestLimits(t *testing.T) {
	allowed := map[string]exception{}
	for _, e := range exceptions {
		if e.reason == "" {
			t.Errorf("the exception for %s of %s has no reason", e.limit, e.thing)
		}
		allowed[e.limit+" "+e.thing] = e
	}
	for _, found := range findExcesses(t) {
		key := found.limit + " " + found.thing
		e, ok := allowed[key]
		delete(allowed, key)
		switch {
		case !ok:
			t.Errorf("%s: %s: %d", found.limit, found.thing, found.size)
		case found.size > e.size:
			t.Errorf("%s: %s: %d, and its exception allows %d", found.limit, found.thing, found.size, e.size)
		case found.size < e.size:
			t.Errorf("%s: %s is down to %d; lower its exception from %d", found.limit, found.thing, found.size, e.size)
		}
	}
	for key := range allowed {
		t.Errorf("%s is within its limit; remove the exception", key)
	}
}

// findExcesses measures all code of the module and returns what exceeds a limit, in a stable order.
func findExcesses(t *testing.T) []excess {
	t.Helper()
	var found []excess
	lines, methods, imports := map[string]int{}, map[string]int{}, map[string]map[string]bool{}
	exceeds := func(limit, thing string, size, most int) {
		if size > most {
			found = append(found, excess{limit, thing, size})
		}
	}
	fset := token.NewFileSet()
	for _, path := range goFiles(t) {
		text, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		exceeds(fmt.Sprintf("line over %d columns", maxColumns), path, countWideLines(text), 0)
		dir := filepath.ToSlash(filepath.Dir(path))
		n := bytes.Count(text, []byte("\n"))
		lines[dir] += n
		exceeds("lines of a file", path, n, maxFileLines)
		file, err := parser.ParseFile(fset, path, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		if imports[dir] == nil {
			imports[dir] = map[string]bool{}
		}
		for _, i := range file.Imports {
			if p := strings.Trim(i.Path.Value, `"`); strings.HasPrefix(p, module) {
				imports[dir][p] = true
			}
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				name := dir + "." + d.Name.Name
				if d.Recv != nil {
					owner := dir + "." + receiverName(d.Recv.List[0].Type)
					methods[owner]++
					name = owner + "." + d.Name.Name
				}
				exceeds("lines of a function", name, fset.Position(d.End()).Line-fset.Position(d.Pos()).Line+1, maxFuncLines)
				exceeds("cyclomatic complexity", name, cyclomaticComplexity(d), maxComplexity)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok {
						exceeds("fields of a struct", dir+"."+s.Name.Name, countFields(s), maxFields)
					}
				}
			}
		}
	}
	for dir, n := range lines {
		exceeds("lines of a package", dir, n, maxPackageLines)
	}
	for name, n := range methods {
		exceeds("methods of a type", name, n, maxMethods)
	}
	for dir, set := range imports {
		exceeds("imports of ours", dir, len(set), maxOwnImports)
	}
	slices.SortFunc(found, func(a, b excess) int { return strings.Compare(a.limit+a.thing, b.limit+b.thing) })
	return found
}

// countWideLines returns the number of lines of a file that are longer than maxColumns.
func countWideLines(text []byte) (wide int) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for lines.Scan() {
		if utf8.RuneCount(lines.Bytes()) > maxColumns {
			wide++
		}
	}
	return wide
}

// countFields returns the number of fields of a struct type (0 for other types).
func countFields(s *ast.TypeSpec) (n int) {
	if st, ok := s.Type.(*ast.StructType); ok {
		for _, f := range st.Fields.List {
			n += max(1, len(f.Names))
		}
	}
	return n
}

// cyclomaticComplexity returns 1 plus the number of branches, loops, cases and logical operators in a function.
// Function literals count for the function that contains them.
func cyclomaticComplexity(f *ast.FuncDecl) int {
	n := 1
	ast.Inspect(f, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if node.List != nil {
				n++
			}
		case *ast.CommClause:
			if node.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}
