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

// networkAPIs lists the names in the standard library that open network connections, by package.
var networkAPIs = map[string]string{
	"http": "Client DefaultClient DefaultTransport Transport Get Head Post PostForm",
	"net":  "Dial DialTimeout DialTCP DialUDP DialUnix DialIP Dialer",
	"tls":  "Dial DialWithDialer Dialer",
}

// No code has access to the network except package egress, the adapters of models, and the code that fetches the
// keys of the token issuer from the address in the configuration. This proves a part of guarantee S13.
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
				way := usedNetworkAPI(n)
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

// usedNetworkAPI returns the network API that a syntax node uses as a value or in a literal (empty if none). A
// pointer to a client that other code has created does not count.
func usedNetworkAPI(n ast.Node) string {
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
	for name := range strings.FieldsSeq(networkAPIs[pkg.Name]) {
		if name == s.Sel.Name {
			return pkg.Name + "." + name
		}
	}
	return ""
}
