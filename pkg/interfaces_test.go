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

// singleImplementation lists the interfaces that have only one implementation in the module, tests included. For
// each it gives the reason why the interface exists.
var singleImplementation = map[string]string{
	"pkg/execution.CredentialBroker": "a step of pkg/ carries it, and the implementation with its cryptography is internal",
}

// TestInterfaces_HaveMoreThanOneImplementation requires two implementations of each interface. A type counts as an
// implementation if it has methods with the same names, so the test needs no type checking.
func TestInterfaces_HaveMoreThanOneImplementation(t *testing.T) {
	interfaces, types := collectTypes(t)
	for _, name := range slices.Sorted(maps.Keys(interfaces)) {
		wanted := interfaceMethods(name, interfaces, map[string]bool{})
		if len(wanted) == 0 {
			continue // a constraint, or an interface of other modules alone
		}
		var found []string
		for owner := range types {
			if has := allMethods(owner, types, interfaces, map[string]bool{}); containsAll(has, wanted) {
				found = append(found, owner)
			}
		}
		switch reason, listed := singleImplementation[name]; {
		case listed && (len(found) != 1 || reason == ""):
			t.Errorf("%s has %d implementations; remove it from the list", name, len(found))
		case !listed && len(found) == 1:
			t.Errorf("%s has one implementation, %s; use the type, or list the interface with its reason", name, found[0])
		}
	}
	for name := range singleImplementation {
		if interfaces[name] == nil {
			t.Errorf("%s is listed and does not exist", name)
		}
	}
}

// typeMembers holds the methods of a type or interface, and the types that it embeds.
type typeMembers struct {
	methods  map[string]bool
	embedded []string // package folder, dot, name; the name alone when it is of another module
}

// collectTypes returns the interfaces of the module and its other types, by folder and name.
func collectTypes(t *testing.T) (interfaces, types map[string]*typeMembers) {
	t.Helper()
	interfaces, types = map[string]*typeMembers{}, map[string]*typeMembers{}
	at := func(of map[string]*typeMembers, name string) *typeMembers {
		if of[name] == nil {
			of[name] = &typeMembers{methods: map[string]bool{}}
		}
		return of[name]
	}
	for _, path := range goFiles(t) {
		text, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		local := importedFolders(file)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					at(types, dir+"."+receiverName(n.Recv.List[0].Type)).methods[n.Name.Name] = true
				}
			case *ast.TypeSpec:
				switch kind := n.Type.(type) {
				case *ast.InterfaceType:
					if strings.HasSuffix(path, "_test.go") {
						return true
					}
					m := at(interfaces, dir+"."+n.Name.Name)
					for _, f := range kind.Methods.List {
						for _, name := range f.Names {
							m.methods[name.Name] = true
						}
						if len(f.Names) == 0 {
							m.embedded = append(m.embedded, qualifiedName(dir, f.Type, local))
						}
					}
				case *ast.StructType:
					m := at(types, dir+"."+n.Name.Name)
					for _, f := range kind.Fields.List {
						if len(f.Names) == 0 {
							m.embedded = append(m.embedded, qualifiedName(dir, f.Type, local))
						}
					}
				}
			}
			return true
		})
	}
	return interfaces, types
}

// importedFolders maps the names under which a file imports packages of this module to the folders of these
// packages.
func importedFolders(file *ast.File) map[string]string {
	names := map[string]string{}
	for _, i := range file.Imports {
		if dir, ok := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module); ok {
			name := dir[strings.LastIndex(dir, "/")+1:]
			if i.Name != nil {
				name = i.Name.Name
			}
			names[name] = dir
		}
	}
	return names
}

// qualifiedName returns the folder and the name of a type, joined by a dot.
func qualifiedName(dir string, e ast.Expr, local map[string]string) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return qualifiedName(dir, e.X, local)
	case *ast.IndexExpr:
		return qualifiedName(dir, e.X, local)
	case *ast.Ident:
		return dir + "." + e.Name
	case *ast.SelectorExpr:
		if pkg, ok := e.X.(*ast.Ident); ok && local[pkg.Name] != "" {
			return local[pkg.Name] + "." + e.Sel.Name
		}
		return "." + e.Sel.Name
	}
	return ""
}

// interfaceMethods returns the names of all methods of an interface, including embedded ones.
func interfaceMethods(name string, interfaces map[string]*typeMembers, seen map[string]bool) map[string]bool {
	m := interfaces[name]
	if m == nil || seen[name] {
		return nil
	}
	seen[name] = true
	all := maps.Clone(m.methods)
	for _, e := range m.embedded {
		maps.Copy(all, interfaceMethods(e, interfaces, seen))
	}
	return all
}

// allMethods returns the names of all methods of a type, including the methods of embedded types.
func allMethods(name string, types, interfaces map[string]*typeMembers, seen map[string]bool) map[string]bool {
	if m := interfaces[name]; m != nil {
		return interfaceMethods(name, interfaces, map[string]bool{})
	}
	m := types[name]
	if m == nil || seen[name] {
		return nil
	}
	seen[name] = true
	all := maps.Clone(m.methods)
	for _, e := range m.embedded {
		maps.Copy(all, allMethods(e, types, interfaces, seen))
	}
	return all
}

func containsAll(has, wanted map[string]bool) bool {
	for name := range wanted {
		if !has[name] {
			return false
		}
	}
	return true
}
