package models

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
	"github.com/troupe-dev/troupe/test/gobuild"
)

// `troupe ask` shows tokens as they arrive. The model sends the rest of its answer only after the first word was
// shown, so buffering anywhere in between would block the test.
// Req: CO-9, CO-11
func TestAsk_StreamsTokensWithoutBuffering(t *testing.T) {
	shown := make(chan struct{})
	server := startProvider(t, llmtest.RepliesInOrder(
		llmtest.Reply{Texts: []string{"I look."}, Calls: []llmtest.Call{toolCall("call_7", "search_documents", `{"query":"what an agent may write"}`)}},
		llmtest.Reply{Texts: []string{"An agent ", "writes ", "its own ", "state."}, Hold: shown},
	))
	docs := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(docs, "state.md"), []byte("# State\n\nAn agent may write its own state.\n"), 0o600))
	folder := agentFolder(t, "  model: openai/test-large\n  tools:\n    - builtin: search_documents\n      with: {path: "+docs+"}\n")

	programs, err := gobuild.Build("", "github.com/troupe-dev/troupe/cmd/troupe")
	require.NoError(t, err)
	troupe := filepath.Join(programs, "troupe")
	dev := startProgram(t, troupe, "dev", "--data-dir", t.TempDir(), "--agents", folder, "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0",
		"--agent-log", "off")
	address := dev.readUntil(regexp.MustCompile(`gRPC +(\S+)\s`))

	ask := startProgram(t, troupe, "ask", "--addr", address, "--target", "helper", "What may an agent write?")
	first := ask.readUntil(regexp.MustCompile(`(.*An agent )`))
	require.NotContains(t, first, "writes", "of a reply whose rest the model holds back")
	close(shown)
	text := ask.readToEnd()
	require.Contains(t, text, "I look.")
	require.Contains(t, text, "search_documents")
	require.Contains(t, text, "An agent writes its own state.")

	asked := server.Requests()
	require.Len(t, asked, 2)
	require.Equal(t, "test-large", asked[0].Model)
	require.Equal(t, []conversation.Message{conversation.User("What may an agent write?")}, asked[0].Messages)
	require.Equal(t, "search_documents", asked[0].Tools[0].Name)
	require.Contains(t, toolResults(asked[1])["call_7"], "An agent may write its own state.")

	require.NoError(t, dev.cmd.Process.Signal(syscall.SIGTERM))
	require.Contains(t, dev.readToEnd(), "The mesh has stopped.")
}

// program is a running program and its output so far.
type program struct {
	t        *testing.T
	cmd      *exec.Cmd
	out      *bufio.Reader
	stderr   strings.Builder
	output   strings.Builder
	hasEnded bool
	cancel   context.CancelFunc
}

func startProgram(t *testing.T, name string, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	p := &program{t: t, cmd: exec.CommandContext(ctx, name, args...), cancel: cancel}
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out, p.cmd.Stderr = bufio.NewReader(out), &p.stderr
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		cancel()
		if !p.hasEnded {
			_ = p.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("%s wrote:\n%s%s", strings.Join(p.cmd.Args[1:], " "), p.output.String(), p.stderr.String())
		}
	})
	return p
}

// readUntil reads the output until it matches the pattern, and returns the text of the first group.
func (p *program) readUntil(pattern *regexp.Regexp) string {
	p.t.Helper()
	for {
		if found := pattern.FindStringSubmatch(p.output.String()); found != nil {
			return found[1]
		}
		b, err := p.out.ReadByte()
		require.NoError(p.t, err, "before it wrote %s", pattern)
		p.output.WriteByte(b)
	}
}

// readToEnd reads until the program ends, requires a successful exit, and returns the whole output.
func (p *program) readToEnd() string {
	p.t.Helper()
	rest, err := io.ReadAll(p.out)
	require.NoError(p.t, err)
	p.output.Write(rest)
	p.hasEnded = true
	require.NoError(p.t, p.cmd.Wait(), fmt.Sprint(p.cmd.Args))
	return p.output.String()
}
