package pkg_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const apiGolden = "testdata/api.golden"

// TestAPI_MatchesGoldenFile compares the exported declarations of pkg/ with a file, so that a review sees each
// change of the public API. It parses the source only. The command `make api` rewrites the file.
func TestAPI_MatchesGoldenFile(t *testing.T) {
	have := publicAPI(t)
	if *update {
		if err := os.MkdirAll(filepath.Dir(apiGolden), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(apiGolden, []byte(have), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(apiGolden)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("there is no pkg/%s yet; run make api and commit it", apiGolden)
	}
	if err != nil {
		t.Fatal(err)
	}
	if string(want) == have {
		return
	}
	wanted, got := lineSet(string(want)), lineSet(have)
	for _, line := range slices.Sorted(maps.Keys(wanted)) {
		if !got[line] {
			t.Logf("- %s", line)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(got)) {
		if !wanted[line] {
			t.Logf("+ %s", line)
		}
	}
	t.Errorf("the public API differs from pkg/%s; run make api, and say in CHANGELOG.md what changes for authors", apiGolden)
}

func lineSet(text string) map[string]bool {
	set := map[string]bool{}
	for line := range strings.Lines(text) {
		set[strings.TrimSpace(line)] = true
	}
	return set
}

// publicAPI returns the exported declarations of all public packages, without comments and function bodies. Packages,
// and the declarations in them, are sorted by name.
func publicAPI(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	packages := publicFiles(t)
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		var decls []string
		for _, file := range packages[dir] {
			ast.FileExports(file)
			for _, decl := range file.Decls {
				if key, text := formatDeclaration(t, decl); text != "" {
					decls = append(decls, key+"\x00"+text)
				}
			}
		}
		slices.Sort(decls)
		fmt.Fprintf(&out, "package %s\n\n", dir)
		for _, d := range decls {
			_, text, _ := strings.Cut(d, "\x00")
			out.WriteString(text + "\n\n")
		}
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// formatDeclaration returns the text of an exported declaration and its sort key. Constants and variables come
// first, then types with their methods, then functions. The text is empty for imports.
func formatDeclaration(t *testing.T, decl ast.Decl) (key, text string) {
	t.Helper()
	switch d := decl.(type) {
	case *ast.FuncDecl:
		d.Body = nil
		key = "3 " + d.Name.Name
		if d.Recv != nil {
			key = "2 " + receiverName(d.Recv.List[0].Type) + "." + d.Name.Name
		}
	case *ast.GenDecl:
		if d.Tok == token.IMPORT || len(d.Specs) == 0 {
			return "", ""
		}
		switch s := d.Specs[0].(type) {
		case *ast.TypeSpec:
			key = "2 " + s.Name.Name
		case *ast.ValueSpec:
			key = "1 " + s.Names[0].Name
		}
	}
	ast.Inspect(decl, func(n ast.Node) bool { // no remark on unexported fields, and no lines for them
		switch n := n.(type) {
		case *ast.StructType:
			n.Incomplete = false
			if len(n.Fields.List) == 0 {
				n.Fields.Opening, n.Fields.Closing = 0, 0
			}
		case *ast.InterfaceType:
			n.Incomplete = false
		}
		return true
	})
	var buf bytes.Buffer
	if err := format.Node(&buf, token.NewFileSet(), decl); err != nil {
		t.Fatal(err)
	}
	return key, buf.String()
}
