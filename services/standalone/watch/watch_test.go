package watch

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout bounds every wait in these tests. It is far longer than any wait should take.
const testTimeout = 30 * time.Second

// watchUntilEnd returns a folder that is watched until the test ends.
func watchUntilEnd(t *testing.T) (dir string, await func(what string)) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "prompts"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".git"), 0o700))
	f, err := New(dir, zap.NewNop())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	changed, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx, func() {
			select {
			case changed <- struct{}{}:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() { stop(); <-ended })
	return dir, func(what string) {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(testTimeout):
			require.FailNow(t, "no report", what)
		}
	}
}

func writeFile(t *testing.T, elements ...string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(elements...), []byte(t.Name()), 0o600))
}

func TestFolder_ReportsEveryKindOfChange(t *testing.T) {
	dir, await := watchUntilEnd(t)
	writeFile(t, dir, "agent.yaml")
	await("a new file")
	writeFile(t, dir, "agent.yaml")
	await("a file written in place")
	writeFile(t, dir, "prompts", "a.md")
	await("a file in a folder below")

	writeFile(t, dir, ".agent.yaml.swp") // as editors do that replace files
	require.NoError(t, os.Rename(filepath.Join(dir, ".agent.yaml.swp"), filepath.Join(dir, "agent.yaml")))
	await("a file that another took the place of")
	require.NoError(t, os.Rename(filepath.Join(dir, "agent.yaml"), filepath.Join(dir, "agent.yaml~")))
	writeFile(t, dir, "agent.yaml")
	await("a file made anew beside its backup")

	require.NoError(t, os.MkdirAll(filepath.Join(dir, "more", "prompts"), 0o700))
	await("a new folder")
	writeFile(t, dir, "more", "prompts", "b.md")
	await("a file in a new folder")
	require.NoError(t, os.Remove(filepath.Join(dir, "agent.yaml")))
	await("a file that is gone")
}

// Changes to files of editors, version control and package managers are ignored. Parent folders of the watched
// folder do not matter.
func TestFolder_IgnoresFilesOfEditorsAndGit(t *testing.T) {
	f := &Folder{dir: "agents"}
	for name, ignored := range map[string]bool{
		"agents": false, "agents/a.yaml": false, "agents/prompts/a.md": false,
		"agents/.git": true, "agents/.git/index": true, "agents/.a.yaml.swp": true, "agents/a.yaml~": true,
		"agents/node_modules/x/y.js": true,
	} {
		require.Equal(t, ignored, f.isIgnored(name), name)
	}
	dotted := &Folder{dir: "/home/me/.config/agents"}
	require.False(t, dotted.isIgnored("/home/me/.config/agents/a.yaml"), "what is above the folder does not count")
}

func TestNew_NamesTheMissingFolder(t *testing.T) {
	_, err := New(filepath.Join(t.TempDir(), "nowhere"), zap.NewNop())
	require.ErrorContains(t, err, "nowhere")
}

func TestDebounce_ReportsOnceAfterTheLastChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, began := make(chan struct{}), time.Now()
		var reports []time.Duration
		ended := make(chan struct{})
		go func() { defer close(ended); debounce(seen, func() { reports = append(reports, time.Since(began)) }) }()
		for range 3 { // at 0, 50 and 100 ms
			seen <- struct{}{}
			time.Sleep(quietTime / 2)
		}
		time.Sleep(time.Second - time.Since(began)) // at 1 s, and on without a pause
		for range 60 {
			seen <- struct{}{}
			time.Sleep(quietTime / 2)
		}
		time.Sleep(quietTime)
		close(seen)
		<-ended
		require.Equal(t, quietTime*2, reports[0])
		require.Equal(t, time.Second+maxDelay, reports[1], "it waits no longer")
		require.Len(t, reports, 4)
	})
}
