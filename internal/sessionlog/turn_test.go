package sessionlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func loadYAML[T any](t require.TestingT, parts ...string) (v T) {
	text, err := os.ReadFile(filepath.Join(parts...))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &v))
	return v
}

func decodeNode(t *testing.T, n yaml.Node) (v any) {
	t.Helper()
	require.NoError(t, n.Decode(&v))
	return v
}

// editFile replaces texts in a file, as a person would with an editor.
func editFile(t *testing.T, path string, replacements ...string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	edited := strings.NewReplacer(replacements...).Replace(string(text))
	require.NotEqual(t, string(text), edited)
	require.NoError(t, os.WriteFile(path, []byte(edited), 0o600))
}

// Req: CO-54, CO-55, CO-58, CO-69
func TestWriteTurn_WritesRunAndSessionLog(t *testing.T) {
	folder := t.TempDir()
	l := openLog(t, Config{Folder: folder, Model: "openai/gpt-5", SystemPrompt: "You are\nkind."})
	asked := []conversation.Message{conversation.User("What are the tiers?"), {
		Role: conversation.RoleAssistant, Author: "research", ToolCalls: []conversation.ToolCall{{ID: "1", Name: "search", Arguments: `{"q":"<tier>"}`}},
	}, {Role: conversation.RoleTool, ToolCallID: "1", Text: "three"}, conversation.Assistant("research", "Three:\n- AGENT")}
	require.NoError(t, l.WriteTurn(Turn{
		Session: "s1", Number: 1, Input: "What are the tiers?", Started: noon, Duration: 1500 * time.Millisecond,
		Usage:       execution.Usage{InputTokens: 1200, OutputTokens: 80, ModelCalls: 2, CostMicros: 12_300},
		ToolsCalled: []string{"search", "search", "read"}, Result: "Three:\n- AGENT", Reason: "natural", Messages: asked,
	}))
	require.NoError(t, l.WriteTurn(Turn{
		Session: "s1", Number: 2, Input: "And?", Started: noon.Add(time.Minute), Duration: 500 * time.Millisecond, Model: "other",
		Usage: execution.Usage{InputTokens: 10, OutputTokens: 1, ModelCalls: 1}, Reason: "error",
		Err:      failure.New(failure.ResourceAPI, "llm", "the provider is away").Because(errors.New("key=sk-1")),
		Messages: append(asked, conversation.User("And?")),
	}))

	text, err := os.ReadFile(filepath.Join(folder, "evals", "research", "what-are-the-tiers.yaml"))
	require.NoError(t, err)
	updated := loadYAML[sessionLog](t, folder, "evals", "research", "what-are-the-tiers.yaml").Updated
	require.WithinDuration(t, time.Now(), updated, time.Minute)
	require.Empty(t, cmp.Diff(`name: what-are-the-tiers
agent: research
model: other
input: What are the tiers?
created: 2026-05-01T12:00:00Z
started: 2026-05-01T12:00:00Z
updated: NOW
runs: 1
sessions:
  1: s1
turns:
  - turn: 1
    input: What are the tiers?
    expected: ""
    run: 1
    model: openai/gpt-5
    output: |-
      Three:
      - AGENT
    reason: natural
    tools_called: [search, search, read]
    evaluation: ""
    meta: '{"tokens":1280,"input_tokens":1200,"output_tokens":80,"cost":0.0123,"duration_ms":1500,"ts":"2026-05-01T12:00:00Z"}'
    history: []
  - turn: 2
    input: And?
    expected: ""
    run: 1
    model: other
    output: ""
    reason: error
    error: the provider is away
    tools_called: []
    evaluation: ""
    meta: '{"tokens":11,"input_tokens":10,"output_tokens":1,"cost":null,"duration_ms":500,"ts":"2026-05-01T12:01:00Z"}'
    history: []
`, strings.Replace(string(text), updated.Format(time.RFC3339Nano), "NOW", 1)))

	text, err = os.ReadFile(filepath.Join(folder, "evals", "research", "what-are-the-tiers", "run_1.yaml"))
	require.NoError(t, err)
	cwd, err := os.Getwd()
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(`agent: research
session: s1
system_prompt: |-
  You are
  kind.
model: other
cwd: `+cwd+`
tokens: 1291
input_tokens: 1210
output_tokens: 81
cost: 0.0123
duration_ms: 2000
timestamp: 2026-05-01T12:01:00Z
messages: |-
  [
  {"role":"system","content":"You are\nkind."},
  {"role":"user","content":"What are the tiers?"},
  {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"search","arguments":"{\"q\":\"<tier>\"}"}}]},
  {"role":"tool","content":"three","tool_call_id":"1"},
  {"role":"assistant","content":"Three:\n- AGENT"},
  {"role":"user","content":"And?"}
  ]
`, string(text)))
}

// Req: CO-58
func TestWriteTurn_SessionsWithTheSameFirstInputShareALog(t *testing.T) {
	folder := t.TempDir()
	l := openLog(t, Config{Folder: folder})
	turn := func(l *Log, session string, number int, result string) {
		t.Helper()
		require.NoError(t, l.WriteTurn(Turn{
			Session: session, Number: number, Input: fmt.Sprintf("Question %d", number), Result: result,
			Usage: execution.Usage{InputTokens: int64(10 * number)}, Messages: []conversation.Message{conversation.User("Question 1")},
		}))
	}
	path := filepath.Join(folder, "evals", "research", "question-1.yaml")
	turn(l, "a", 1, "a1")
	editFile(t, path, `expected: ""`, "expected: {like: a1}", `evaluation: ""`, "evaluation: good", "turns:", "note: mine\nturns:")
	turn(l, "b", 1, "b1")
	turn(l, "b", 2, "b2")
	turn(l, "a", 2, "a2") // a turn of the previous run
	// Another process can continue the session: it writes a middle turn again, and then the last one.
	later := openLog(t, Config{Folder: folder})
	turn(later, "b", 2, "b2 again")
	turn(later, "b", 3, "b3")
	turn(later, "c", 1, "c1")

	log := loadYAML[sessionLog](t, path)
	require.Equal(t, 3, log.Runs)
	require.Equal(t, map[int]yamlText{1: "a", 2: "b", 3: "c"}, log.Sessions)
	require.Equal(t, "mine", decodeNode(t, log.CustomFields["note"]))
	type told struct {
		Run        int
		Output     yamlText
		Evaluation any
	}
	var got [][]told
	for _, e := range log.Turns {
		line := []told{{e.Run, e.Output, decodeNode(t, e.Evaluation)}}
		for _, h := range e.History {
			line = append(line, told{h.Run, h.Output, decodeNode(t, h.Evaluation)})
		}
		got = append(got, line)
	}
	require.Empty(t, cmp.Diff([][]told{
		{{3, "c1", ""}, {2, "b1", ""}, {1, "a1", "good"}},
		{{2, "b2 again", ""}, {1, "a2", ""}},
		{{2, "b3", ""}},
	}, got))
	require.Equal(t, map[string]any{"like": "a1"}, decodeNode(t, log.Turns[0].Expected))
	require.Equal(t, []string{
		"question-1.yaml", "question-1/run_1.yaml", "question-1/run_2.yaml", "question-1/run_3.yaml",
	}, listFiles(t, filepath.Join(folder, "evals", "research")))
	require.EqualValues(t, 10+20+20+30, loadYAML[runFile](t, folder, "evals/research/question-1/run_2.yaml").Tokens)
}

func TestWriteTurn_KeepsEditedFields(t *testing.T) {
	folder := t.TempDir()
	l := openLog(t, Config{Folder: folder})
	path := filepath.Join(folder, "evals", "research", "hello.yaml")
	logTurn(t, l)
	editFile(t, path, `expected: ""`, "expected: Hi there", `evaluation: ""`, "evaluation: too short\n    grade: 3")
	require.NoError(t, l.WriteTurn(Turn{Session: "s1", Number: 2, Input: "More"}))
	require.NoError(t, l.WriteTurn(Turn{Session: "s1", Number: 1, Input: "Hello", Result: "Hi!"}))
	log := loadYAML[sessionLog](t, path)
	require.Len(t, log.Turns, 2)
	require.EqualValues(t, "Hi!", log.Turns[0].Output)
	require.Equal(t, "Hi there", decodeNode(t, log.Turns[0].Expected))
	require.Equal(t, "too short", decodeNode(t, log.Turns[0].Evaluation))
	require.Equal(t, 3, decodeNode(t, log.Turns[0].CustomFields["grade"]))

	broken := "turns: {"
	require.NoError(t, os.WriteFile(path, []byte(broken), 0o600))
	err := l.WriteTurn(Turn{Session: "s1", Number: 3, Input: "Still there?"})
	require.Contains(t, failure.PlainMessage(err), path)
	require.Contains(t, failure.PlainMessage(err), "repair it or move it away")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, broken, string(text))
	require.NoError(t, os.Remove(path))
	require.NoError(t, l.WriteTurn(Turn{Session: "s1", Number: 3, Input: "Still there?"}))
	require.Equal(t, 1, loadYAML[sessionLog](t, path).Runs)
}

func TestWriteTurn_InputsWithTheSameSlugHaveSeparateLogs(t *testing.T) {
	folder := t.TempDir()
	l := openLog(t, Config{Folder: folder})
	for i, input := range []string{"Hello!", "hello?", "Hello!", "", "!", "\xff\xfe", "\xff\xfe"} {
		require.NoError(t, l.WriteTurn(Turn{Session: fmt.Sprint(i), Number: 1, Input: input}))
	}
	require.Equal(t, []string{
		"hello-b45cf64669f2f8da.yaml", "hello-b45cf64669f2f8da/run_1.yaml", "hello.yaml", "hello/run_1.yaml", "hello/run_2.yaml",
		"session-83d544ccc223c057.yaml", "session-83d544ccc223c057/run_1.yaml", "session-83d544ccc223c057/run_2.yaml",
		"session-bb7208bc9b5d7c04.yaml", "session-bb7208bc9b5d7c04/run_1.yaml", "session.yaml", "session/run_1.yaml",
	}, listFiles(t, filepath.Join(folder, "evals", "research")))
}

// Req: CO-58
func TestWriteTurn_KeepsTwentyRunsAndFiveHundredTurns(t *testing.T) {
	folder := t.TempDir()
	l := openLog(t, Config{Folder: folder})
	path := filepath.Join(folder, "evals", "research", "hello.yaml")
	own := filepath.Join(folder, "evals", "research", "hello", "run_mine.yaml")
	for i := range MaxRuns + 5 {
		require.NoError(t, l.WriteTurn(Turn{Session: fmt.Sprint(i), Number: 1, Input: "Hello"}))
		if i == 0 {
			require.NoError(t, os.WriteFile(own, nil, 0o600))
		}
	}
	runs := listFiles(t, filepath.Join(folder, "evals", "research", "hello"))
	require.Len(t, runs, MaxRuns+1)
	require.FileExists(t, own)
	require.NotContains(t, runs, "run_5.yaml")
	require.Contains(t, runs, "run_6.yaml")
	log := loadYAML[sessionLog](t, path)
	require.Equal(t, MaxRuns+5, log.Runs)
	require.Len(t, log.Sessions, MaxRuns)
	require.Len(t, log.Turns[0].History, MaxRuns-1)

	s := &sessionLog{Turns: []turnEntry{{Turn: 1, Expected: yaml.Node{Kind: yaml.ScalarNode, Value: "kept"}}}}
	for n := 2; n <= MaxTurns+3; n++ {
		s.addTurn(run{number: 1}, Turn{Number: n})
	}
	require.Len(t, s.Turns, MaxTurns)
	require.Equal(t, 1, s.Turns[0].Turn)
	require.Equal(t, 5, s.Turns[1].Turn)
}

func TestWriteTurn_RemovesTheOldestLogs(t *testing.T) {
	folder := t.TempDir()
	l := openLog(t, Config{Folder: folder})
	require.NoError(t, l.WriteTurn(Turn{Session: "0", Number: 1, Input: "log 0"}))
	logs := filepath.Join(folder, "evals", "research")
	editFile(t, filepath.Join(logs, "log-0.yaml"), `expected: ""`, "expected: x")
	text, err := os.ReadFile(filepath.Join(logs, "log-0.yaml"))
	require.NoError(t, err)
	for i := range MaxLogs {
		path := filepath.Join(logs, fmt.Sprintf("log-%d.yaml", i))
		if i > 0 {
			require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), "expected: x", "expected:")), 0o600))
		}
		require.NoError(t, os.Chtimes(path, noon, noon.Add(time.Duration(i)*time.Second)))
	}
	require.NoError(t, l.WriteTurn(Turn{Session: "new", Number: 1, Input: "log new"}))
	require.FileExists(t, filepath.Join(logs, "log-new.yaml"))
	require.FileExists(t, filepath.Join(logs, "log-0.yaml"), "a person filled in an expected result")
	require.NoFileExists(t, filepath.Join(logs, "log-1.yaml"))
	require.FileExists(t, filepath.Join(logs, "log-2.yaml"))
}

// The numbers of concurrent sessions are kept apart, and no turn is lost.
// Req: CO-58
func TestWriteTurn_SeparatesConcurrentSessions(t *testing.T) {
	folder := t.TempDir()
	l := openLog(t, Config{Folder: folder})
	const sessions, turns = 8, 5
	var all sync.WaitGroup
	for s := range sessions {
		all.Go(func() {
			for n := 1; n <= turns; n++ {
				if err := l.WriteTurn(Turn{
					Session: fmt.Sprint(s), Number: n, Input: fmt.Sprintf("Question %d of pair %d", n, s/2),
					Usage: execution.Usage{InputTokens: int64(100*s + n), CostMicros: int64(s * n)}, Duration: time.Duration(n) * time.Second,
				}); err != nil {
					t.Error(err)
				}
				if err := l.WriteLine(Line{Kind: Result, Session: fmt.Sprint(s), Turn: n}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	seen := 0
	for pair := range sessions / 2 {
		log := loadYAML[sessionLog](t, folder, "evals", "research", fmt.Sprintf("question-1-of-pair-%d.yaml", pair))
		require.Equal(t, 2, log.Runs)
		require.Len(t, log.Turns, turns)
		for n, e := range log.Turns {
			require.Len(t, e.History, 1)
			for _, o := range append(e.History, e.turnOutcome) {
				var session int
				_, err := fmt.Sscan(string(log.Sessions[o.Run]), &session)
				require.NoError(t, err)
				var m turnUsage
				require.NoError(t, json.Unmarshal([]byte(o.Meta), &m))
				require.EqualValues(t, 100*session+n+1, m.Tokens)
				require.EqualValues(t, (n+1)*1000, m.DurationMS)
				require.Equal(t, session == 0, m.Cost == nil)
				seen++
			}
		}
	}
	require.Equal(t, sessions*turns, seen)
	text, err := os.ReadFile(filepath.Join(folder, "logs", "research.log"))
	require.NoError(t, err)
	require.Equal(t, sessions*turns, strings.Count(string(text), "\n"))
}

// Every text is read back from YAML unchanged.
func TestEncode_RoundTripsAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		said := rapid.Custom(func(t *rapid.T) yamlText {
			return yamlText(rapid.OneOf(rapid.String(),
				rapid.StringMatching(`[ \t\n\r:#'"|>~%@&*!-]{0,8}[a-z0-9\x{85}\x{2028}\x{feff}]{0,2}[ \n\t]{0,3}([a-z][ ]?\n){0,2}`),
				rapid.SampledFrom([]string{"null", "true", "12", "1e3", "2026-01-01", "=", "<<", "a: b", "- a"})).Draw(t, "text"))
		})
		want := sessionLog{Input: said.Draw(t, "first"), Turns: []turnEntry{{
			Input: said.Draw(t, "input"), Expected: emptyNode(),
			turnOutcome: turnOutcome{
				Output: said.Draw(t, "output"), Error: said.Draw(t, "error"), ToolsCalled: []yamlText{said.Draw(t, "tool")},
				Evaluation: emptyNode(),
			},
		}}, Sessions: map[int]yamlText{1: said.Draw(t, "session")}}
		var got sessionLog
		for range 2 { // twice, because every turn reads and writes the file again
			text, err := encodeYAML(want)
			require.NoError(t, err)
			got = sessionLog{}
			require.NoError(t, yaml.Unmarshal(text, &got), "%s", text)
			require.Equal(t, want.Input, got.Input, "%s", text)
			require.Equal(t, want.Sessions, got.Sessions, "%s", text)
			require.Equal(t, want.Turns[0].Input, got.Turns[0].Input, "%s", text)
			require.Equal(t, want.Turns[0].Output, got.Turns[0].Output, "%s", text)
			require.Equal(t, want.Turns[0].Error, got.Turns[0].Error, "%s", text)
			require.Equal(t, want.Turns[0].ToolsCalled, got.Turns[0].ToolsCalled, "%s", text)
			require.False(t, got.isEdited())
			want = got
		}
	})
}

func TestSlug(t *testing.T) {
	for text, want := range map[string]string{
		"What are the tiers?":             "what-are-the-tiers",
		"  --  ":                          "session",
		"Größe, 東京!":                      "größe-東京",
		strings.Repeat("word ", 100):      strings.TrimSuffix(strings.Repeat("word-", 12), "-"),
		strings.Repeat("東", 100):          strings.Repeat("東", 20),
		"a" + strings.Repeat("b", 80):     "a" + strings.Repeat("b", 59),
		"../../etc/passwd":                "etc-passwd",
		"1 " + strings.Repeat("long", 40): "1-" + strings.Repeat("long", 14) + "lo",
	} {
		require.Equal(t, want, slug(text))
	}
}
