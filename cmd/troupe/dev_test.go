package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/process"
)

// syncBuffer collects the output of a command and lets a test read it while the command runs.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(waitTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			require.FailNow(t, "waited in vain", what)
		}
	}
}

const guideManifest = "apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: guide}\nspec:\n  model: builtin/extractive\n  tools: [{builtin: search_documents, with: {path: DOCS}}]\n"

// The help texts say what a token permits and what an open port gives to callers.
func TestHelp_ExplainsTokensAndOpenPorts(t *testing.T) {
	for command, words := range map[string][]string{
		"new token": {`--tenant="default"`, "pause, drain and quarantine agents, replay turns"},
		"dev":       {"without any proof of who calls", "all that an admin may"},
	} {
		var out bytes.Buffer
		require.Equal(t, process.ExitOK, run(t.Context(), append(strings.Fields(command), "--help"), console.Terminal{Out: &out, Err: &out}))
		for _, w := range words {
			require.Contains(t, strings.Join(strings.Fields(out.String()), " "), w)
		}
	}
}

func TestDev_PrintsEndpointsAndReloadsAgents(t *testing.T) {
	dir, data := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	north, south := filepath.Join(dir, "north"), filepath.Join(dir, "south")
	write(filepath.Join(north, "town.md"), "The museum is in the north of the town.\n")
	write(filepath.Join(south, "town.md"), "The museum is in the south of the town.\n")
	write(filepath.Join(dir, "agent.yaml"), strings.Replace(guideManifest, "DOCS", north, 1))

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out syncBuffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{
			"dev", "--agents", dir, "--data-dir", data, "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--log-level", "error",
		}, console.Terminal{Out: &out, Err: io.Discard})
	}()
	eventually(t, "the mesh is up", func() bool { return strings.Contains(out.String(), "Stop it with Ctrl-C.") })
	env, err := os.ReadFile(filepath.Join(data, "mesh.env"))
	require.NoError(t, err)
	settings := map[string]string{}
	for line := range strings.Lines(string(env)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		settings[name] = value
	}
	require.Contains(t, settings, "TROUPE_ETCD")
	require.Contains(t, settings, "TROUPE_MEMORY")
	require.Equal(t, filepath.Join(data, "identity"), settings["TROUPE_TLS_DEV_CA"])
	addr := settings["TROUPE_ADDR"]
	require.Contains(t, out.String(), "troupe ask --addr "+addr+" --target guide")
	require.Contains(t, out.String(), "Edit the files in "+dir+": new turns use what they say.")

	ask := func() string {
		var said bytes.Buffer
		code := run(t.Context(), []string{"ask", "--addr", addr, "--target", "guide", "Where is the museum?"}, console.Terminal{Out: &said, Err: &said})
		require.Equal(t, process.ExitOK, code, said.String())
		return said.String()
	}
	require.Contains(t, ask(), "in the north")
	write(filepath.Join(dir, "agent.yaml"), strings.Replace(guideManifest, "DOCS", south, 1))
	eventually(t, "the edited file takes effect", func() bool { return strings.Contains(ask(), "in the south") })

	stop()
	require.Equal(t, process.ExitOK, <-ended)
	require.NoFileExists(t, filepath.Join(data, "mesh.env"))
}
