package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/process"
)

// The command prints its address and serves until it receives a signal.
func TestA2A_ServesTheMesh(t *testing.T) {
	d := newMesh(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	var told strings.Builder
	left := make(chan int, 1)
	go func() {
		left <- runCommand(ctx, []string{"a2a", "--server", d.Addr, "--listen", "127.0.0.1:0", "--name", "desk", "--log-level", "error"},
			console.Terminal{Out: in, Err: &told})
		_ = in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	url, _, _ := strings.Cut(strings.TrimPrefix(line, "A2A is served at "), " ")

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/.well-known/agent-card.json", http.NoBody)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var card struct{ Name, URL string }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&card))
	require.Equal(t, "desk", card.Name)
	require.Equal(t, url+"/", card.URL)
	stop()
	require.Equal(t, process.ExitOK, <-left, told.String())
}

// The command reports an unreachable mesh at its start, because every request would fail.
func TestA2A_WarnsWhenMeshIsUnreachable(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	said, in := io.Pipe()
	left := make(chan int, 1)
	go func() {
		left <- runCommand(ctx, []string{"a2a", "--server", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--log-level", "error"},
			console.Terminal{Out: io.Discard, Err: in})
		_ = in.Close()
	}()
	line, err := bufio.NewReader(said).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "troupe: cannot reach a mesh at 127.0.0.1:1: connection refused. Requests fail until it can be reached.\n", line)
	stop()
	require.Equal(t, process.ExitOK, <-left)
}

// The bridge has no authentication, so an address that other machines can reach needs an explicit flag.
func TestA2A_RejectsOpenAddressWithoutFlag(t *testing.T) {
	for listen, says := range map[string]string{
		"0.0.0.0:0":      "add --allow-unauthenticated",
		":0":             "add --allow-unauthenticated",
		"192.0.2.1:7410": "add --allow-unauthenticated",
		"mesh:7410":      "add --allow-unauthenticated",
		"7410":           "want HOST:PORT",
	} {
		var out, told strings.Builder
		require.Equal(t, process.ExitUsage, runCommand(t.Context(), []string{"a2a", "--listen", listen}, console.Terminal{Out: &out, Err: &told}), listen)
		require.Contains(t, told.String(), says, listen)
		require.Empty(t, out.String())
	}
}
