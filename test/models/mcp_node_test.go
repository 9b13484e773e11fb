//go:build node

package models

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
)

// npmServer returns the path of a server that `npm ci` has installed in package mcptool; see the Makefile.
func npmServer(t *testing.T, name string) string {
	t.Helper()
	program, err := filepath.Abs("../../pkg/tool/mcptool/testdata/servers/node_modules/.bin/" + name)
	require.NoError(t, err)
	return program
}

// An agent declared in YAML uses the tools of two real MCP servers. One server is killed while it runs a tool. The
// model reads the failure, and the next call reconnects to the server.
func TestNode_MCPServersFromYAMLProvideTools(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "note.txt"), []byte("Buy bread."), 0o600))
	heard, pid := filepath.Join(t.TempDir(), "heard"), filepath.Join(t.TempDir(), "pid")
	// The shell copies each request to a file and then becomes the server.
	everything := fmt.Sprintf("echo $$ > %s; exec %s < <(tee -a %s)", pid, npmServer(t, "mcp-server-everything"), heard)
	const slow = "trigger-long-running-operation"
	server := startProvider(t, llmtest.RepliesInOrder(
		llmtest.Reply{Calls: []llmtest.Call{
			toolCall("a", "every_echo", `{"message":"hello"}`),
			toolCall("b", "read_text_file", fmt.Sprintf(`{"path":%q}`, filepath.Join(folder, "note.txt"))),
			toolCall("c", "read_text_file", `{"path":"/etc/passwd"}`),
		}},
		llmtest.Reply{Texts: []string{"Bread."}},
		llmtest.Reply{Calls: []llmtest.Call{toolCall("d", "every_"+slow, `{"duration":600,"steps":2}`)}},
		llmtest.Reply{Calls: []llmtest.Call{toolCall("e", "every_echo", `{"message":"again"}`)}},
		llmtest.Reply{Texts: []string{"It is back."}},
	))
	// Tool descriptions of one server could trigger calls of the other, so the guard would ask for approval.
	c := startMesh(t, agentFolder(t, fmt.Sprintf(`  model: openai/test-large
  guard: off
  tools:
    - mcp: {command: [bash, -c, %q], prefix: every_, tools: [echo, %s]}
    - mcp: {command: [%q, %q]}
  lifecycle: {timeout: 1m}
`, everything, slow, npmServer(t, "mcp-server-filesystem"), folder)))

	tools, answer := runTurn(t, c, "What do I buy?")
	require.Equal(t, "Bread.", answer)
	require.Equal(t, []string{"every_echo SUCCESS", "read_text_file SUCCESS", "read_text_file ERROR"}, tools)
	told := toolResults(server.Requests()[1])
	require.Equal(t, "Echo: hello", told["a"])
	require.Equal(t, "Buy bread.", told["b"])
	require.Contains(t, told["c"], "Access denied")

	killed := make(chan error, 1)
	go func() { killed <- killAfterRequest(t.Context(), heard, slow, pid) }()
	tools, answer = runTurn(t, c, "Take your time.")
	require.NoError(t, <-killed)
	require.Equal(t, "It is back.", answer)
	require.Equal(t, []string{"every_" + slow + " ERROR", "every_echo SUCCESS"}, tools)
	told = toolResults(server.Requests()[4])
	require.Contains(t, told["d"], "lost its server while it ran")
	require.Equal(t, "Echo: again", told["e"])
}

// killAfterRequest kills the process whose id is in a file once the other file contains the word.
func killAfterRequest(ctx context.Context, heard, word, pid string) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		text, _ := os.ReadFile(heard) // it may not exist yet
		if strings.Contains(string(text), `"name":"`+word) {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the server was never asked for %s", word)
		}
	}
	text, err := os.ReadFile(pid)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return syscall.Kill(number, syscall.SIGKILL)
}
