package sessionlog

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// listFiles returns the paths of all files in a folder, relative to it.
func listFiles(t *testing.T, folder string) []string {
	t.Helper()
	all := []string{}
	require.NoError(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, strings.TrimPrefix(filepath.ToSlash(path), filepath.ToSlash(folder)+"/"))
		}
		return err
	}))
	slices.Sort(all)
	return all
}

func openLog(t *testing.T, c Config) *Log {
	t.Helper()
	if c.Agent == "" {
		c.Agent = "research"
	}
	l, err := Open(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func logTurn(t *testing.T, l *Log) {
	t.Helper()
	require.NoError(t, l.WriteLine(Line{Kind: UserInput, Session: "s1", Turn: 1, Text: "Hello"}))
	require.NoError(t, l.WriteTurn(Turn{Session: "s1", Number: 1, Input: "Hello", Result: "Hi"}))
}

// Req: CO-56, CO-57
func TestOpen_ChoosesFolderAndPlainLog(t *testing.T) {
	evals := []string{".troupe/evals/research/hello.yaml", ".troupe/evals/research/hello/run_1.yaml"}
	everything := append(slices.Clone(evals), ".troupe/logs/research.log")
	for name, c := range map[string]struct {
		config  Config
		env     string
		files   []string
		console bool
	}{
		"by default": {files: everything, console: true},
		"quiet":      {config: Config{Quiet: true}, files: everything},
		"off":        {config: Config{Off: true}, files: []string{}, console: true},
		"in a folder": {config: Config{Folder: "x/y"}, files: []string{
			"x/y/evals/research/hello.yaml",
			"x/y/evals/research/hello/run_1.yaml", "x/y/logs/research.log",
		}, console: true},
		"in a file":                 {config: Config{Folder: "x/debug.log"}, files: append(slices.Clone(evals), "x/debug.log"), console: true},
		"off by the environment":    {env: "off", files: []string{}, console: true},
		"on by the environment":     {config: Config{Off: true}, env: "on", files: everything, console: true},
		"a file of the environment": {config: Config{Folder: "x"}, env: "env.log", files: append(slices.Clone(evals), "env.log"), console: true},
		"a folder over off, quietly": {config: Config{Off: true, Quiet: true}, env: "z", files: []string{
			"z/evals/research/hello.yaml",
			"z/evals/research/hello/run_1.yaml", "z/logs/research.log",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			t.Chdir(folder)
			var console bytes.Buffer
			c.config.Console = &console
			c.config.Lookup = func(name string) (string, bool) { return c.env, name == EnvVariable && c.env != "" }
			logTurn(t, openLog(t, c.config))
			require.Empty(t, cmp.Diff(c.files, listFiles(t, folder)))
			require.Equal(t, c.console, console.Len() > 0)
		})
	}
}

func TestWriteLine_EscapesLineBreaks(t *testing.T) {
	folder := t.TempDir()
	var console bytes.Buffer
	l := openLog(t, Config{Folder: folder, Console: &console})
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, line := range []Line{
		{Kind: UserInput, Session: "s1", Turn: 2, Text: "Which tiers\nare there?\x1b[31m"},
		{Kind: ModelCall, Session: "s1", Turn: 2, Text: "openai/gpt-5", Duration: 1234567 * time.Microsecond, Usage: execution.Usage{
			InputTokens:  1200,
			OutputTokens: 80, CostMicros: 12300,
		}},
		{Kind: ToolCall, Session: "s1", Turn: 2, Text: `search {"q":"ä"}`, Duration: 2 * time.Millisecond},
		{Kind: Warning, Text: strings.Repeat("a", maxLineText+1)},
		{Kind: Result, Session: "s\n1", Turn: 2, Text: "Three."},
	} {
		line.Time = at
		require.NoError(t, l.WriteLine(line))
	}
	want := `2026-05-01T12:00:00.000Z  s1/2  user     Which tiers\nare there?\x1b[31m
2026-05-01T12:00:00.000Z  s1/2  model    openai/gpt-5  1.2346s  1200+80 tokens  $0.012300
2026-05-01T12:00:00.000Z  s1/2  tool     search {"q":"ä"}  2ms
2026-05-01T12:00:00.000Z  warning  ` + strings.Repeat("a", maxLineText) + `…
2026-05-01T12:00:00.000Z  s\n1/2  result   Three.
`
	text, err := os.ReadFile(filepath.Join(folder, "logs", "research.log"))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want, string(text)))
	require.Empty(t, cmp.Diff(strings.ReplaceAll(want, "2026-05-01T12:00:00.000Z", "12:00:00"), console.String()))
}

func TestOpen_AppendsToThePlainLog(t *testing.T) {
	folder := t.TempDir()
	for range 2 {
		l := openLog(t, Config{Folder: folder})
		require.NoError(t, l.WriteLine(Line{Kind: Result}))
		require.NoError(t, l.Close())
		require.NoError(t, l.Close(), "a second Close does nothing")
		require.Error(t, l.WriteLine(Line{Kind: Result}), "after the end")
		require.Error(t, l.WriteTurn(Turn{Number: 1}), "after the end")
	}
	text, err := os.ReadFile(filepath.Join(folder, "logs", "research.log"))
	require.NoError(t, err)
	require.Equal(t, 2, bytes.Count(text, []byte("\n")))
}

func TestOpen_RestrictsFilesToTheirUser(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a", "b")
	logTurn(t, openLog(t, Config{Folder: folder}))
	require.NoError(t, filepath.WalkDir(filepath.Dir(folder), func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, path)
		return nil
	}))
}

func TestOpen_WritesInsideItsFolderOnly(t *testing.T) {
	for _, agent := range []string{"../../evil", "..", "/etc/passwd", "a\x00b", ".", strings.Repeat("x", 5000), "Rechercheur ä"} {
		parent := t.TempDir()
		folder := filepath.Join(parent, "deep", "log")
		l := openLog(t, Config{Agent: agent, Folder: folder})
		for _, id := range []string{"../../../s", "/tmp/s", "", strings.Repeat("../", 100)} {
			for n, input := range []string{"../../../etc/passwd", "..", "/", "\x00", "CON", strings.Repeat("ü", 5000)} {
				require.NoError(t, l.WriteTurn(Turn{Session: id, Number: n + 1, Input: input}), "%q %q %q", agent, id, input)
			}
		}
		for _, f := range listFiles(t, parent) {
			require.True(t, strings.HasPrefix(f, "deep/log/logs/") || strings.HasPrefix(f, "deep/log/evals/"), f)
			require.Less(t, len(filepath.Base(f)), 255)
		}
	}
	// A symbolic link in the folder is not followed to a file outside of it.
	folder, outside := t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(folder, "evals")))
	require.Error(t, openLog(t, Config{Folder: folder}).WriteTurn(Turn{Number: 1, Input: "Hello"}))
	require.Empty(t, listFiles(t, outside))
}

func TestOpen_ErrorNamesThePathAndSaysWhatToDo(t *testing.T) {
	_, err := Open(Config{})
	require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)

	taken := filepath.Join(t.TempDir(), "taken")
	require.NoError(t, os.WriteFile(taken, nil, 0o600))
	for _, folder := range []string{taken, filepath.Join(taken, "x"), filepath.Join(taken, "x.log")} {
		t.Chdir(t.TempDir())
		_, err = Open(Config{Agent: "research", Folder: folder})
		require.True(t, failure.Is(err, failure.SystemDisk), "%v", err)
		require.Contains(t, failure.PlainMessage(err), taken)
		require.Contains(t, failure.PlainMessage(err), "TROUPE_LOG=off")
	}
}
