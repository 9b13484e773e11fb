package local_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/memoryrpc"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Environment variables that tell a child process which session to open.
const (
	envMemory  = "TROUPE_TEST_MEMORY"
	envSession = "TROUPE_TEST_SESSION"
)

// approvalAgent returns an agent whose tool needs an approval.
func approvalAgent(t *testing.T, work func()) *agent.Agent {
	t.Helper()
	found, err := tool.Func("lookup", "Looks.", func(context.Context, topic) (string, error) { work(); return "found", nil })
	require.NoError(t, err)
	return build(t, agent.Config{
		Model: obedientModel{}, Tools: []tool.Tool{tool.WithEffect(execution.AtMostOnce, found)}, Handlers: []hook.Handler{approvalGuard(time.Time{})},
	})
}

// Child processes of the test below run this function until they are killed. They make the call that needs an
// approval, or approve it. In the test process itself the function does nothing.
func TestSession_InAnotherProcess(t *testing.T) {
	if os.Getenv(envMemory) == "" {
		return
	}
	conn, err := rpc.Dial(os.Getenv(envMemory), telemetry.Discard())
	require.NoError(t, err)
	defer conn.Close()
	never := make(chan struct{})
	a := approvalAgent(t, func() {
		fmt.Fprintln(os.Stdout, "working")
		<-never
	})
	s, err := local.Open(t.Context(), a, local.Config{Store: memoryrpc.New(conn), ID: os.Getenv(envSession), Lease: 2 * time.Second})
	require.NoError(t, err)
	in := local.Input{Text: "allow it"}
	if waits := s.Pending(); len(waits) > 0 {
		in = answerTo(waits[0], execution.Approve, "")
	}
	done, err := s.Execute(t.Context(), in, nil)
	require.NoError(t, err)
	fmt.Fprintln(os.Stdout, done.Result.Text)
	<-never
}

// runUntilLineAndKill runs a child process, and kills it once it has printed a line.
func runUntilLineAndKill(t *testing.T, address, id string) string {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestSession_InAnotherProcess$")
	cmd.Env = append(os.Environ(), envMemory+"="+address, envSession+"="+id)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan(), "the process prints a line")
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	return lines.Text()
}

// The first process is killed after it made the call, and the second while the approved tool runs. A third process
// continues with all finished work. The tool does not run twice.
// Req: LP-10a, LP-16, LP-32
func TestSession_PendingCallOutlivesItsProcesses(t *testing.T) {
	address, store := servedMemory(t)
	const id = "waits"
	require.Equal(t, "lookup waits for an approval.", runUntilLineAndKill(t, address, id))
	require.Equal(t, "working", runUntilLineAndKill(t, address, id))

	ran := 0
	s := openSession(t, approvalAgent(t, func() { ran++ }), local.Config{Store: store, ID: id})
	done, err := s.Execute(t.Context(), local.Input{Continue: true}, nil)
	for failure.Is(err, failure.SessionBusy) { // until the lease of the second has ended
		<-time.After(50 * time.Millisecond)
		done, err = s.Execute(t.Context(), local.Input{Continue: true}, nil)
	}
	require.NoError(t, err)
	require.Equal(t, 2, done.Turn)
	require.Equal(t, "I found it.", done.Result.Text)
	require.Zero(t, ran, "the tool call is in doubt")
	require.Equal(t, session.Ready, s.State())
	require.Empty(t, s.Pending())
	messages, err := s.Messages(t.Context(), 0)
	require.NoError(t, err)
	require.NoError(t, conversation.CheckRounds(messages))
	require.Len(t, messages, 5)
	require.Contains(t, messages[3].Text, "UNKNOWN_OUTCOME")
	require.Equal(t, "lookup waits for an approval.", messages[1].Text)

	// Another process may approve the call long after the first process has ended.
	const again = "waits-again"
	runUntilLineAndKill(t, address, again)
	s = openSession(t, approvalAgent(t, func() { ran++ }), local.Config{Store: store, ID: again})
	require.Equal(t, session.InputRequired, s.State())
	require.Equal(t, "I found it.", runAnswers(t, s, answerTo(s.Pending()[0], execution.Approve, "")).Result.Text)
	require.Equal(t, 1, ran)
}
