package mcptool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/pkg/tool/mcptool"
)

// waitTimeout bounds every wait of these tests. It is far longer than any wait should take.
const waitTimeout = 30 * time.Second

// testConfig returns a Config that starts this test binary as an MCP server.
func testConfig(t *testing.T, mode string, tools ...string) mcptool.Config {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	return mcptool.Config{
		Command: []string{program}, Tools: tools,
		Env:          []string{serverMode + "=" + mode, "GORACE=atexit_sleep_ms=0"}, // or each would take a second to end
		StartTimeout: waitTimeout, CallTimeout: waitTimeout,
	}
}

// startedTools is a set of started tools, as a running agent has them, with their log.
type startedTools struct {
	*tool.Set

	t   *testing.T
	log *observer.ObservedLogs
}

// startTools starts all tools of a server and closes them at the end of the test.
func startTools(t *testing.T, c mcptool.Config) *startedTools {
	t.Helper()
	a := &startedTools{t: t}
	core, logs := observer.New(zap.DebugLevel)
	c.Log, a.log = zap.New(core), logs
	server, err := mcptool.New(c)
	require.NoError(t, err)
	a.Set, err = tool.NewSet(server.Tools()...)
	require.NoError(t, err)
	for _, tl := range a.Tools() {
		require.NoError(t, tl.(tool.Starter).Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, tl.(tool.Starter).Close()) })
	}
	return a
}

func (s *startedTools) call(name, args string) (string, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	return s.callWithContext(ctx, name, args)
}

func (s *startedTools) callWithContext(ctx context.Context, name, args string) (string, error) {
	s.t.Helper()
	result, err := s.find(name).Call(ctx, json.RawMessage(args))
	return result.Text, err
}

func (s *startedTools) find(name string) tool.Tool {
	s.t.Helper()
	tl, ok := s.Find(name)
	require.True(s.t, ok, name)
	return tl
}

func (s *startedTools) mustCall(name, args string) string {
	s.t.Helper()
	text, err := s.call(name, args)
	require.NoError(s.t, err)
	return text
}

// awaitLog waits until a log line or one of its fields contains the text.
func (s *startedTools) awaitLog(text string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		for _, entry := range s.log.All() {
			if strings.Contains(entry.Message, text) {
				return true
			}
			if strings.Contains(fmt.Sprint(entry.ContextMap()), text) {
				return true
			}
		}
		return false
	}, waitTimeout, 10*time.Millisecond, text)
}

// awaitProcessEnd waits until a process has ended.
func awaitProcessEnd(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		if syscall.Kill(n, 0) != nil {
			return true
		}
		status, err := os.ReadFile("/proc/" + pid + "/stat") // orphans may wait for an init that reaps them
		return err == nil && strings.Contains(string(status), ") Z ")
	}, waitTimeout, 10*time.Millisecond)
}

func TestServer_DescribesItsToolsOnceStarted(t *testing.T) {
	c := testConfig(t, "good", "add", "key", "fail", "die.reading")
	c.Prefix = "my_"
	server, err := mcptool.New(c)
	require.NoError(t, err)
	add := server.Tools()[0]
	require.Equal(t, "my_add", add.Spec().Name)
	require.Empty(t, add.Spec().Description)
	require.Equal(t, execution.AtMostOnce, tool.EffectOf(add))
	_, err = add.Call(t.Context(), json.RawMessage(`{"a": 1}`))
	require.ErrorContains(t, err, "is not started; start the agent first")

	a := startTools(t, c)
	require.Equal(t, []string{"my_add", "my_key", "my_fail", "my_die_reading"}, a.Names())
	require.Equal(t, "3", a.mustCall("my_add", `{"a": 1, "b": 2}`))
	effects := map[string]execution.Effect{}
	for _, tl := range a.Tools() {
		effects[tl.Spec().Name] = tool.EffectOf(tl)
	}
	require.Empty(t, cmp.Diff(map[string]execution.Effect{
		"my_add": execution.Read, "my_key": execution.Idempotent, "my_fail": execution.AtMostOnce, "my_die_reading": execution.Read,
	}, effects))
	require.Equal(t, "Adds.", a.Tools()[0].Spec().Description)
	require.Equal(t, "The key.", a.Tools()[1].Spec().Description)
	require.Contains(t, string(a.Tools()[0].Spec().Schema), `"required":["a"]`)
	a.awaitLog("hello from good")
}

func TestNames_ReturnsAllPagesInOrder(t *testing.T) {
	names, err := mcptool.Names(t.Context(), testConfig(t, "good"))
	require.NoError(t, err)
	require.Equal(t, []string{
		"add", "change", "child", "die", "die.reading", "env", "fail", "hang", "key", "kinds", "long", "pictures", "pid", "stop", "structure", "tells", "tree",
	}, names)
}

// Req: CO-37
func TestCall_ErrorContainsAHint(t *testing.T) {
	a := startTools(t, testConfig(t, "good", "add", "fail", "tree"))
	for name, tc := range map[string]struct{ tool, args, want string }{
		"missing":        {"add", `{"b": 1}`, "(required: a; all: a, b; provided: b)"},
		"wrong type":     {"add", `{"a": "one"}`, "the arguments of add do not fit"},
		"no JSON":        {"add", `{"a": `, "they are not a JSON object"},
		"of the server":  {"fail", `{"a": 1}`, "the tool fail says: there is no such file (required: a; all: a, b; provided: a)"},
		"without schema": {"tree", `{`, "the arguments of tree are not a JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := a.call(tc.tool, tc.args)
			require.ErrorContains(t, err, tc.want)
			require.True(t, failure.Is(err, failure.AgentValidation, failure.ResourceTool))
		})
	}
	require.Equal(t, `{"child":{"child":{}}}`, a.mustCall("tree", `{"child": {"child": {}}}`), "a schema that holds itself is left to the server")
	a.awaitLog("the schema holds itself")
}

func TestCall_SendsTheIdempotencyKey(t *testing.T) {
	a := startTools(t, testConfig(t, "good", "key"))
	text, err := a.callWithContext(tool.ContextWithIdempotencyKey(t.Context(), "step-1/2"), "key", ``)
	require.NoError(t, err)
	require.Equal(t, "step-1/2", text)
	require.Equal(t, "<nil>", a.mustCall("key", `{}`))
}

// Req: CO-39
func TestCall_BoundsItsResult(t *testing.T) {
	a := startTools(t, testConfig(t, "good", "long", "kinds", "structure"))
	require.Len(t, a.mustCall("long", `{"a": 10}`), 20)
	text := a.mustCall("long", `{"a": 200000}`)
	require.LessOrEqual(t, len(text), tool.MaxResult)
	require.Contains(t, text, "… (cut: it has 400000 bytes)")
}

// Images, sounds and embedded files are attachments of the result; texts, and links to resources, are its text.
//
// Req: CO-74, CO-39c
func TestCall_ReturnsAllKindsOfContent(t *testing.T) {
	a := startTools(t, testConfig(t, "good", "kinds", "structure", "pictures"))
	result, err := a.find("kinds").Call(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "words\na page file:///page text/html An entry.\nfile:///note\nnoted\nfile:///dir/blob", result.Text)
	require.Equal(t, []conversation.Attachment{
		{MediaType: "image/png", Data: []byte("1234")},
		{MediaType: "audio/wav", Data: []byte("12345")},
		{Name: "blob", MediaType: "image/png", Data: []byte("123")},
	}, result.Attachments)
	require.Empty(t, result.Structured)

	result, err = a.find("structure").Call(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, `{"answer":42}`, result.Text)
	require.JSONEq(t, `{"answer":42}`, string(result.Structured))

	for _, c := range []struct{ args, text, files string }{
		{`{"a": 8, "b": 4}`, "", "8"},
		{`{"a": 9, "b": 4}`, "(an image, image/png, of 4 bytes, is left out: a result has at most 8 files of 1048576 bytes, and 3145728 bytes together)", "8"},
		{`{"a": 1, "b": 1048577}`, "(an image, image/png, of 1048577 bytes, is left out: a result has at most 8 files of 1048576 bytes, and 3145728 bytes together)", "0"},
		{`{"a": 4, "b": 1000000}`, "(an image, image/png, of 1000000 bytes, is left out: a result has at most 8 files of 1048576 bytes, and 3145728 bytes together)", "3"},
	} {
		result, err := a.find("pictures").Call(t.Context(), json.RawMessage(c.args))
		require.NoError(t, err)
		require.Equal(t, c.text, result.Text)
		require.Equal(t, c.files, strconv.Itoa(len(result.Attachments)))
	}
}

func TestServer_GetsOnlyTheListedEnvironment(t *testing.T) {
	t.Setenv("GIVEN", "yes")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	c := testConfig(t, "good", "env")
	c.Env = append(c.Env, "GIVEN")
	c.Dir = t.TempDir()
	text := startTools(t, c).mustCall("env", ``)
	require.True(t, strings.HasPrefix(text, c.Dir+"\n"), text)
	require.Contains(t, text, "\nGIVEN=yes")
	require.Contains(t, text, "\nPATH=")
	require.NotContains(t, text, "secret")

	c.Env = []string{"MISSING_TOKEN"}
	_, err := mcptool.New(c)
	require.ErrorContains(t, err, "env[0]: MISSING_TOKEN is not set in the environment")
}

func TestNew_RejectsInvalidSettings(t *testing.T) {
	program := []string{"server"}
	for want, c := range map[string]mcptool.Config{
		"command is missing":            {Tools: []string{"a"}},
		"url: there is a command":       {Command: program, URL: "https://example.com/mcp"},
		"tools is missing":              {Command: program},
		`tools[1]: "a" is there`:        {Command: program, Tools: []string{"a", "a"}},
		"are both called a_b":           {Command: program, Tools: []string{"a.b", "a/b"}},
		`prefix is "a b"`:               {Command: program, Prefix: "a b"},
		`url is "ftp://x"`:              {URL: "ftp://x"},
		`https://me:xxxxx@example.com/`: {URL: "https://me:secret@example.com/"},
		"env and dir are for a command": {URL: "https://example.com", Dir: "x"},
		"allowInnerAddresses are for a": {Command: program, AllowInnerAddresses: innerAddresses},
		"use positive durations":        {Command: program, CallTimeout: -1},
	} {
		_, err := mcptool.New(c)
		require.ErrorContains(t, err, want)
		require.True(t, failure.Is(err, failure.UserInvalidInput))
	}
	long := strings.Repeat("x", 80)
	server, err := mcptool.New(mcptool.Config{Command: program, Tools: []string{long + "1", long + "2"}})
	require.NoError(t, err)
	_, err = tool.NewSet(server.Tools()...)
	require.NoError(t, err, "long names stay two")
}
