package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/mutants/internal/list"
	"github.com/troupe-dev/troupe/test/overlay"
)

const repositoryRoot = "../.."

// The lists are in step with the code: each snippet is in its file once, and each test is there and names the requirement
// that it proves.
func TestLists_FollowTheCode(t *testing.T) {
	folder, err := fs.Sub(lists, "lists")
	require.NoError(t, err)
	mutations, err := list.Read(folder)
	require.NoError(t, err)
	named := map[string]map[string]bool{} // by package: the tests with the ids that they name
	for _, m := range mutations {
		if _, err := overlay.ApplyAll(repositoryRoot, []overlay.Change{m.Change()}); err != nil {
			t.Errorf("%s: %v", m.Name(), err)
		}
		if named[m.Package()] == nil {
			named[m.Package()] = findNamedRequirements(t, m.Package())
		}
		test, _, _ := strings.Cut(m.TestName(), "/")
		if !named[m.Package()][test+" "+m.ID] {
			t.Errorf("%s: %s of %s does not name %s in a comment (Req:)", m.Name(), test, m.Package(), m.ID)
		}
	}
}

// requirementPattern matches an id, or a range of ids, in a comment that names requirements.
var requirementPattern = regexp.MustCompile(`([A-Z]{1,2})-(\d+)([a-z]?)(?:\s*\.\.\s*[A-Z]{1,2}-(\d+))?`)

// findNamedRequirements returns the tests of a package with each id that a comment before or inside of them names, as
// "TestName ID".
func findNamedRequirements(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(repositoryRoot, filepath.FromSlash(pkg), "*_test.go"))
	require.NoError(t, err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		require.NoError(t, err)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			from := f.Pos()
			if f.Doc != nil {
				from = f.Doc.Pos()
			}
			for line := range strings.SplitSeq(string(text[fset.Position(from).Offset:fset.Position(f.End()).Offset]), "\n") {
				if _, ids, ok := strings.Cut(line, "Req:"); ok {
					addRequirements(found, f.Name.Name, ids)
				}
			}
		}
	}
	return found
}

func addRequirements(found map[string]bool, test, ids string) {
	for _, m := range requirementPattern.FindAllStringSubmatch(ids, -1) {
		first, _ := strconv.Atoi(m[2])
		last, err := strconv.Atoi(m[4])
		if err != nil {
			last = first
		}
		for n := first; n <= last; n++ {
			found[test+" "+m[1]+"-"+strconv.Itoa(n)+m[3]] = true
		}
	}
}
