package spec_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/services/worker/internal/builtin"
	"github.com/troupe-dev/troupe/services/worker/internal/spec"
)

// mcpServer starts an MCP server over HTTP that requires a token, and returns its address.
func mcpServer(t *testing.T) (address string) {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	for _, name := range []string{"echo", "forget"} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{}, nil
			})
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer open sesame" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(site.Close)
	return site.URL
}

func TestBuild_UsesToolsOfAnMCPServer(t *testing.T) {
	address := mcpServer(t)
	t.Setenv("SESAME", "open sesame")
	build := func(more string) []string {
		a, err := spec.Build(t.Context(), agentFolder("  model: builtin/extractive\n  tools:\n    - builtin: current_time\n    - mcp: "+
			"{url: "+address+", tokenEnv: SESAME"+more+"}\n"),
			"", spec.Dependencies{Models: modelProviders(t), Tools: builtin.Catalog{}})
		require.NoError(t, err)
		require.NoError(t, a.Start(t.Context()))
		require.NoError(t, a.Close())
		return a.Tools()
	}
	require.Equal(t, []string{"current_time", "echo", "forget"}, build(""))
	require.Equal(t, []string{"current_time", "my_echo"}, build(", tools: [echo], prefix: my_"))
}

func TestBuild_ReportsInvalidMCPServers(t *testing.T) {
	missing := t.TempDir() + "/no-such-program"
	_, err := spec.Build(t.Context(), agentFolder(`
  model: builtin/extractive
  tools:
    - mcp: {}
    - mcp: {command: [x], tools: [a]}
      builtin: current_time
    - mcp: {url: "https://example.com", tools: [a], tokenEnv: NOT_SET_ANYWHERE}
    - mcp: {url: "https://example.com", tools: [a], allowInnerAddresses: [home]}
    - mcp: {command: [`+missing+`]}
    - mcp: {command: [x], tools: [a], prefix: "a b"}
    - mcp: {command: [x], tools: [a], env: [NOT_SET_ANYWHERE]}
`), "", spec.Dependencies{Models: modelProviders(t), Tools: builtin.Catalog{}})
	require.Error(t, err)
	_, reason := os.Stat(missing)
	require.Empty(t, cmp.Diff([]string{
		`agents.yaml:8: tools[0].mcp: command is missing: give the program and its arguments, or the url of a server`,
		`agents.yaml:9: tools[1]: use builtin, mcp or client, and only one of them`,
		`agents.yaml:11: tools[2].mcp.tokenEnv: NOT_SET_ANYWHERE is not set in the environment of the worker`,
		`agents.yaml:12: tools[3].mcp: allowInnerAddresses[0] is "home"; use a network such as 10.0.0.0/8, or an address`,
		`agents.yaml:13: tools[4].mcp: the MCP server no-such-program did not start: command: ` + missing + ` cannot be run: fork/exec ` + strings.TrimPrefix(reason.Error(), "stat "),
		`agents.yaml:14: tools[5].mcp: prefix is "a b"; use at most 32 letters, digits, underscores and hyphens`,
		`agents.yaml:15: tools[6].mcp: env[0]: NOT_SET_ANYWHERE is not set in the environment; set it, or leave it out`,
	}, strings.Split(err.Error(), "\n")))
}
