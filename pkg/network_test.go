package pkg_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// waysOut are what a program reaches the network with, past the libraries that have their own.
var waysOut = map[string]string{
	"http": "Client DefaultClient DefaultTransport Transport Get Head Post PostForm",
	"net":  "Dial DialTimeout DialTCP DialUDP DialUnix DialIP Dialer",
	"tls":  "Dial DialWithDialer Dialer",
}

// It proves a part of guarantee S13: no tool, nor anything else, has a way to the network beside package
// egress. The others are those of the adapters of models, and to the issuer of tokens, to the address that the
// operator gave.
func TestNetwork_IsReachedOnlyThroughEgress(t *testing.T) {
	allowed := map[string]bool{"internal/egress": true, "pkg/llm": true, "internal/identity/oidc": true}
	used := map[string]bool{}
	for _, root := range []string{"pkg", "internal", "services", "cmd", "agents"} {
		err := filepath.WalkDir(filepath.Join("..", root), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			in := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../")
			ast.Inspect(file, func(n ast.Node) bool {
				way := wayOut(n)
				if way != "" && !allowed[in] {
					t.Errorf("%s uses %s; go through internal/egress", path, way)
				}
				used[in] = used[in] || way != ""
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for in := range allowed {
		if !used[in] {
			t.Errorf("%s uses none of the ways out, so this test sees none", in)
		}
	}
}

// wayOut is the way to the network that a node is, by value or by a literal; a pointer to a client that
// somebody else made is none.
func wayOut(n ast.Node) string {
	var e ast.Expr
	switch n := n.(type) {
	case *ast.CompositeLit:
		e = n.Type
	case *ast.CallExpr:
		e = n.Fun
		if name, ok := n.Fun.(*ast.Ident); ok && name.Name == "new" && len(n.Args) == 1 {
			e = n.Args[0]
		}
	case *ast.SelectorExpr:
		e = n
		if !strings.HasPrefix(n.Sel.Name, "Default") {
			return ""
		}
	case *ast.ValueSpec:
		e = n.Type
	default:
		return ""
	}
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	pkg, ok := s.X.(*ast.Ident)
	if !ok {
		return ""
	}
	for name := range strings.FieldsSeq(waysOut[pkg.Name]) {
		if name == s.Sel.Name {
			return pkg.Name + "." + name
		}
	}
	return ""
}
