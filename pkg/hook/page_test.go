package hook_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pagePath is the documentation page that explains this package to authors.
const pagePath = "../../docs/hooks.md"

var quotePattern = regexp.MustCompile("(?s)\n### (\\w+)\n.*?\n```go\n(.*?)```\n")

// Every event has a section on the page, and the section quotes the event's example word for word.
func TestPage_QuotesTheExampleOfEveryEvent(t *testing.T) {
	text, err := os.ReadFile(pagePath)
	require.NoError(t, err)
	examples := functionBodies(t, "example*_test.go")
	quotes := map[string]bool{}
	for _, found := range quotePattern.FindAllStringSubmatch(string(text), -1) {
		name, snippet := found[1], found[2]
		require.False(t, quotes[name], "%s has two parts", name)
		quotes[name] = true
		example, ok := examples["Example"+name]
		require.True(t, ok, "there is no Example%s", name)
		require.Contains(t, example, snippet, "the snippet of %s differs from Example%s", name, name)
	}
	for name := range functionBodies(t, "handlers.go") {
		if ast.IsExported(name) {
			require.True(t, quotes[name], "the page quotes no example of %s", name)
			delete(quotes, name)
		}
	}
	require.Empty(t, quotes, "the page has parts of no event")
}

// The package exports exactly the event names that the contract lists.
// Req: CO-42, AD-27
func TestHandlers_HaveTheDocumentedNames(t *testing.T) {
	var names []string
	for name := range functionBodies(t, "handlers.go") {
		if ast.IsExported(name) {
			names = append(names, name)
		}
	}
	require.ElementsMatch(t, []string{
		"OnUserMessage", "BeforeRun", "AfterRun", "OnEvent",
		"BeforeAgent", "AfterAgent", "AfterUserInput", "BeforeIteration", "AfterIteration", "BeforeLLM", "AfterLLM", "OnLLMError",
		"BeforeTools", "AfterTools", "BeforeEachTool", "AfterEachTool", "OnError", "OnStopSignal", "OnComplete", "OnAgentReady",
	}, names)
}

// functionBodies returns the bodies of all functions in the matching files of this folder, by function name and
// without indentation.
func functionBodies(t *testing.T, pattern string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, names)
	bodies := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, text, 0)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				body := string(text[files.Position(fn.Body.Lbrace).Offset+1 : files.Position(fn.Body.Rbrace).Offset])
				bodies[fn.Name.Name] = strings.ReplaceAll(body, "\n\t", "\n")
			}
		}
	}
	return bodies
}
