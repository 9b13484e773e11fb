package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/services/worker/internal/builtin"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// writeFolder creates a folder with documents.
func writeFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		name = filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	return folder
}

func noSettings(any) error { return nil }

// settingsFrom returns a decode function for settings in JSON.
func settingsFrom(t *testing.T, paths ...string) func(any) error {
	return func(v any) error {
		text, err := json.Marshal(map[string]any{"Paths": paths})
		require.NoError(t, err)
		return json.Unmarshal(text, v)
	}
}

// startTool creates and starts the tool.
func startTool(t *testing.T, paths ...string) tool.Tool {
	t.Helper()
	search, err := builtin.Catalog{}.Tool(builtin.SearchDocuments, settingsFrom(t, paths...))
	require.NoError(t, err)
	starter, ok := search.(tool.Starter)
	require.True(t, ok)
	require.NoError(t, starter.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, starter.Close()) })
	return search
}

func searchPassages(t *testing.T, search tool.Tool, args string) string {
	t.Helper()
	result, err := search.Call(t.Context(), json.RawMessage(args))
	require.NoError(t, err)
	return result.Text
}

var documents = map[string]string{
	"guide.md": `# Guide

A worker hosts one agent.

## Writing state

Agents write their own state
and nothing else.

` + "```yaml\n# not a heading: agent\nkind: Agent\n```\n",
	"sub/notes.txt":         "The orchestrator decides\r\nwho works next, always.\r\n\r\nUnrelated paragraph about bread.\r\n",
	"code.go":               "package code\n\n// Write stores the state of the thing.\nfunc Write() {\n\treturn // nothing at all\n}\n",
	"picture.png":           "agent agent agent agent agent agent",
	"broken.md":             "agents write \xff\xfe and this is no UTF-8 at all",
	"long.md":               strings.Repeat("agents write far too much here\n", 40_000),
	".git/x.md":             "agents write here in a hidden folder",
	"node_modules/x.md":     "agents write here in node_modules",
	"sub/vendor/x.md":       "agents write here in vendor",
	"sub/testdata/x.md":     "agents write here in testdata",
	"sub/gen/generated.txt": "agents write here in gen",
}

func TestSearch_CitesFileAndLine(t *testing.T) {
	folder := writeFolder(t, documents)
	search := startTool(t, folder)
	guide := filepath.ToSlash(folder) + "/guide.md"

	found := searchPassages(t, search, `{"query": "What does an agent write?"}`)
	require.True(t, strings.HasPrefix(found, guide+":7\nAgents write their own state\nand nothing else."), "%s", found)
	require.Contains(t, found, "code.go:3\n// Write stores the state of the thing.\nfunc Write() {")
	for _, passedOver := range []string{"far too much", "UTF-8", "hidden", "node_modules", "vendor", "testdata", "/gen/", "bread", "agent agent"} {
		require.NotContains(t, found, passedOver)
	}
	require.Equal(t, guide+":3\nA worker hosts one agent.", searchPassages(t, search, `{"query": "workers hosting", "limit": 1}`))
	require.Contains(t, searchPassages(t, search, `{"query": "orchestrator"}`), "sub/notes.txt:1\nThe orchestrator decides\nwho works next, always.")
}

func TestSearch_ReturnsNothingWithoutAMatch(t *testing.T) {
	require.Empty(t, searchPassages(t, startTool(t, writeFolder(t, documents)), `{"query": "zebra"}`))
	require.Empty(t, searchPassages(t, startTool(t, writeFolder(t, documents)), `{"query": "the of and"}`))
}

func TestSearch_LimitsItsResults(t *testing.T) {
	text := strings.Repeat("A paragraph about the agents of the mesh.\n\n", 100)
	search := startTool(t, writeFolder(t, map[string]string{"a.md": text}))
	for args, want := range map[string]int{
		`{"query": "agents"}`:               5,
		`{"query": "agents", "limit": 2}`:   2,
		`{"query": "agents", "limit": 999}`: 20,
		`{"query": "agents", "limit": -1}`:  5,
	} {
		require.Equal(t, want, strings.Count(searchPassages(t, search, args), "a.md:"), args)
	}
}

func TestSearch_ReadsSeveralFoldersAndFiles(t *testing.T) {
	folder := writeFolder(t, map[string]string{
		"README.md": "The readme tells of agents.", "docs/a.md": "The docs tell of agents.",
		"other/b.md": "Others tell of agents.",
	})
	found := searchPassages(t, startTool(t, filepath.Join(folder, "README.md"), filepath.Join(folder, "docs")), `{"query": "agents"}`)
	require.Contains(t, found, "/README.md:1\n")
	require.Contains(t, found, "/docs/a.md:1\n")
	require.NotContains(t, found, "other")
}

func TestSearch_FollowsNoLinkOutOfTheFolder(t *testing.T) {
	outside := writeFolder(t, map[string]string{"secret.md": "agents keep secrets outside of the folder"})
	folder := writeFolder(t, map[string]string{"real/a.md": "agents keep nothing secret inside of it"})
	require.NoError(t, os.Symlink(filepath.Join(outside, "secret.md"), filepath.Join(folder, "out.md")))
	require.NoError(t, os.Symlink("real/a.md", filepath.Join(folder, "in.md")))
	found := searchPassages(t, startTool(t, folder), `{"query": "agents secret"}`)
	require.Contains(t, found, "/in.md:1\n")
	require.NotContains(t, found, "outside")
}

func TestSearch_RestartsAfterClose(t *testing.T) {
	search, err := builtin.Catalog{Docs: writeFolder(t, documents)}.Tool(builtin.SearchDocuments, noSettings)
	require.NoError(t, err)
	starter, ok := search.(tool.Starter)
	require.True(t, ok)
	for range 2 {
		_, err = search.Call(t.Context(), json.RawMessage(`{"query": "agent"}`))
		require.ErrorContains(t, err, "not indexed")
		require.NoError(t, starter.Start(t.Context()))
		require.NotEmpty(t, searchPassages(t, search, `{"query": "agent"}`))
		require.NoError(t, starter.Close())
		require.NoError(t, starter.Close(), "again")
	}
}

func TestSearch_ReportsWhyItCannotStart(t *testing.T) {
	for name, tc := range map[string]struct{ path, want string }{
		"missing": {filepath.Join(t.TempDir(), "nowhere"), "with.path: "},
		"empty":   {t.TempDir(), "there is no .md, .txt or .go file in"},
	} {
		t.Run(name, func(t *testing.T) {
			search, err := builtin.Catalog{Docs: tc.path}.Tool(builtin.SearchDocuments, noSettings)
			require.NoError(t, err)
			err = search.(tool.Starter).Start(t.Context())
			require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, tc.path)
		})
	}
}

func TestSearch_StopsWhenItsContextEnds(t *testing.T) {
	search, err := builtin.Catalog{Docs: writeFolder(t, documents)}.Tool(builtin.SearchDocuments, noSettings)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, search.(tool.Starter).Start(ctx), context.Canceled)
}

func TestCatalog_RejectsUnknownToolsAndSettings(t *testing.T) {
	_, err := builtin.Catalog{}.Tool("fly", noSettings)
	require.True(t, failure.Is(err, failure.NotFound), "%v", err)
	_, err = builtin.Catalog{}.Tool(builtin.SearchDocuments, noSettings)
	require.ErrorContains(t, err, "with.path is missing")
	bad := errors.New("bad settings")
	_, err = builtin.Catalog{}.Tool(builtin.SearchDocuments, func(any) error { return bad })
	require.ErrorIs(t, err, bad)
}
