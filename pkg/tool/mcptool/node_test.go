//go:build node

package mcptool_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/pkg/tool/mcptool"
)

// npmServerCommand returns the command of a server that `npm ci` has installed into testdata/servers (see the
// Makefile).
func npmServerCommand(t *testing.T, name string, args ...string) []string {
	t.Helper()
	program, err := filepath.Abs("testdata/servers/node_modules/.bin/" + name)
	require.NoError(t, err)
	return append([]string{program}, args...)
}

func TestNode_Everything(t *testing.T) {
	c := mcptool.Config{Command: npmServerCommand(t, "mcp-server-everything"), Prefix: "every_"}
	names, err := mcptool.Names(t.Context(), c)
	require.NoError(t, err)
	require.Subset(t, names, []string{"echo", "get-sum", "get-tiny-image", "get-env", "trigger-long-running-operation"})
	c.Tools = []string{"echo", "get-sum", "get-tiny-image", "get-env", "trigger-long-running-operation", "get-structured-content", "get-resource-reference"}
	a := startTools(t, c)

	require.Equal(t, "Echo: hello", a.mustCall("every_echo", `{"message": "hello"}`))
	require.Contains(t, a.mustCall("every_get-sum", `{"a": 2, "b": 40}`), "42")
	picture, err := a.find("every_get-tiny-image").Call(t.Context(), nil)
	require.NoError(t, err)
	require.Contains(t, picture.Text, "The image above is the MCP logo.")
	require.Len(t, picture.Attachments, 1)
	require.Equal(t, "image/png", picture.Attachments[0].MediaType)
	require.NotEmpty(t, picture.Attachments[0].Data)
	require.Contains(t, a.mustCall("every_get-structured-content", `{"location": "Chicago"}`), "temperature")
	require.Contains(t, a.mustCall("every_get-resource-reference", `{"resourceType": "Text", "resourceId": 1}`), "demo://resource")
	require.NotContains(t, a.mustCall("every_get-env", ``), "GOPATH")
	require.Contains(t, a.mustCall("every_trigger-long-running-operation", `{"duration": 0.2, "steps": 2}`), "completed")
	_, err = a.call("every_get-sum", `{"a": "two"}`)
	require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = a.callWithContext(ctx, "every_trigger-long-running-operation", `{"duration": 100, "steps": 2}`)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "Echo: still here", a.mustCall("every_echo", `{"message": "still here"}`))
}

func TestNode_EverythingOverHTTP(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := lis.Addr().(*net.TCPAddr).Port
	require.NoError(t, lis.Close())
	run := func() (kill func()) {
		cmd := exec.Command(npmServerCommand(t, "mcp-server-everything")[0], "streamableHttp")
		cmd.Env = append(os.Environ(), "PORT="+strconv.Itoa(port))
		require.NoError(t, cmd.Start())
		kill = func() { _, _ = cmd.Process.Kill(), cmd.Wait() }
		require.Eventually(t, func() bool {
			conn, err := net.Dial("tcp", net.JoinHostPort("localhost", strconv.Itoa(port)))
			if err == nil {
				_ = conn.Close()
			}
			return err == nil
		}, waitTimeout, 20*time.Millisecond)
		return kill
	}
	kill := run()
	a := startTools(t, mcptool.Config{
		URL:   "http://localhost:" + strconv.Itoa(port) + "/mcp",
		Tools: []string{"echo", "trigger-long-running-operation"},
	})
	require.Equal(t, "Echo: hello", a.mustCall("echo", `{"message": "hello"}`))

	called := make(chan error, 1)
	go func() {
		_, err := a.call("trigger-long-running-operation", `{"duration": 100, "steps": 1000}`)
		called <- err
	}()
	select {
	case err := <-called:
		t.Fatalf("the call ended before its server did: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	kill()
	err = <-called
	require.ErrorContains(t, err, "it does no harm to call it again", "the server says that it does not")
	_, err = a.call("echo", `{"message": "hello"}`)
	require.Error(t, err)
	kill = run()
	t.Cleanup(func() { kill() })
	require.Eventually(t, func() bool {
		text, err := a.call("echo", `{"message": "again"}`)
		return err == nil && text == "Echo: again"
	}, waitTimeout, 100*time.Millisecond)
}

func TestNode_Filesystem(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(folder+"/a.txt", []byte("the text"), 0o600))
	c := mcptool.Config{Command: npmServerCommand(t, "mcp-server-filesystem", folder)}
	names, err := mcptool.Names(t.Context(), c)
	require.NoError(t, err)
	c.Tools = names
	a := startTools(t, c)

	require.Equal(t, "the text", a.mustCall("read_text_file", `{"path": "`+folder+`/a.txt"}`))
	require.Contains(t, a.mustCall("list_directory", `{"path": "`+folder+`"}`), "a.txt")
	a.mustCall("write_file", `{"path": "`+folder+`/b.txt", "content": "written"}`)
	text, err := os.ReadFile(folder + "/b.txt")
	require.NoError(t, err)
	require.Equal(t, "written", string(text))
	_, err = a.call("read_text_file", `{"path": "/etc/passwd"}`)
	require.ErrorContains(t, err, "Access denied")
	require.ErrorContains(t, err, "(required: path; all: ")
	_, err = a.call("read_text_file", `{"file": "a.txt"}`)
	require.ErrorContains(t, err, "(required: path; all: ")

	effect := func(name string) execution.Effect {
		tl, ok := a.Find(name)
		require.True(t, ok)
		return tool.EffectOf(tl)
	}
	require.Equal(t, execution.Read, effect("read_text_file"))
	require.Equal(t, execution.Idempotent, effect("write_file"))
	require.Equal(t, execution.AtMostOnce, effect("edit_file"))
	require.True(t, slices.Contains(names, "edit_file"))
}

// A package runner starts the server as its grandchild. If either is killed, the agent reacts the same way and
// neither process is left behind.
func TestNode_KilledMidCall(t *testing.T) {
	c := mcptool.Config{
		Command: []string{"npx", "--no-install", "mcp-server-everything"}, Dir: "testdata/servers",
		Tools: []string{"echo", "trigger-long-running-operation"},
	}
	server, err := mcptool.New(c)
	require.NoError(t, err)
	set, err := tool.NewSet(server.Tools()...)
	require.NoError(t, err)
	for _, tl := range set.Tools() {
		require.NoError(t, tl.(tool.Starter).Start(t.Context()))
	}
	a := &startedTools{Set: set, t: t}
	pids := listDescendants(t)
	require.NotEmpty(t, pids)

	called := make(chan error, 1)
	go func() {
		_, err := a.call("trigger-long-running-operation", `{"duration": 100, "steps": 2}`)
		called <- err
	}()
	select {
	case err := <-called:
		t.Fatalf("the call ended before its server did: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	last, err := strconv.Atoi(pids[len(pids)-1])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(last, syscall.SIGKILL))
	err = <-called
	require.ErrorContains(t, err, "lost its server while it ran")
	require.Equal(t, "Echo: again", a.mustCall("echo", `{"message": "again"}`))
	pids = append(pids, listDescendants(t)...)
	for _, tl := range set.Tools() {
		require.NoError(t, tl.(tool.Starter).Close())
	}
	for _, pid := range pids {
		awaitProcessEnd(t, pid)
	}
}

// listDescendants lists the processes that descend from this one, oldest first.
func listDescendants(t *testing.T) []string {
	t.Helper()
	var all []string
	below := []string{strconv.Itoa(os.Getpid())}
	for len(below) > 0 {
		tasks, err := filepath.Glob("/proc/" + below[0] + "/task/*/children")
		require.NoError(t, err)
		below = below[1:]
		for _, task := range tasks {
			text, _ := os.ReadFile(task) // the task may be gone
			all = append(all, strings.Fields(string(text))...)
			below = append(below, strings.Fields(string(text))...)
		}
	}
	return all
}
