package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/token"
	"github.com/troupe-dev/troupe/internal/process"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// What the command prints is a token, and to stderr a file with its entry: together they open a mesh.
func TestNewToken_PrintsATokenAndItsEntry(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want identity.Principal
	}{
		"client": {[]string{"ann", "--tenant", "acme"}, identity.Principal{Role: identity.Client, Name: "ann", Tenant: "acme"}},
		"breaks": {[]string{"a\u2028b: c\u0085d"}, identity.Principal{Role: identity.Client, Name: "a\u2028b: c\u0085d", Tenant: "default"}},
		"admin":  {[]string{"root", "--admin", "--within", "1h"}, identity.Principal{Role: identity.Admin, Name: "root", Tenant: "default"}},
	} {
		var out, told bytes.Buffer
		require.Equal(t, process.ExitOK, run(t.Context(), append([]string{"new", "token"}, c.args...), terminal{out: &out, err: &told}), name)
		shown := strings.TrimSpace(out.String())
		require.Regexp(t, "^tr_[A-Za-z0-9_-]{43}$", shown)
		require.NotContains(t, told.String(), shown, "it is shown once")
		file := filepath.Join(t.TempDir(), "tokens.yaml")
		require.NoError(t, os.WriteFile(file, told.Bytes(), 0o600))
		f, err := token.Open(file, zap.NewNop())
		require.NoError(t, err)
		got, err := f.Principal(shown)
		require.NoError(t, err)
		require.Equal(t, c.want, got, name)
	}
	for says, args := range map[string][]string{
		"tenant: it must be":    {"ann", "--tenant", "a/b"},
		"--within: -1h0m0s":     {"ann", "--within=-1h"},
		"name: it must be 1 to": {"a\nb"},
	} {
		var out, told bytes.Buffer
		require.Equal(t, process.ExitUsage, run(t.Context(), append([]string{"new", "token"}, args...), terminal{out: &out, err: &told}))
		require.Contains(t, told.String(), says)
		require.Empty(t, out.String())
	}
}

// shows is an orchestrator that notes what callers show.
type shows struct {
	troupev1.UnimplementedOrchestratorServiceServer
	last []string
}

func (s *shows) ListAgents(ctx context.Context, _ *troupev1.ListAgentsRequest) (*troupev1.ListAgentsResponse, error) {
	s.last = metadata.ValueFromIncomingContext(ctx, "authorization")
	return &troupev1.ListAgentsResponse{}, nil
}

func TestServer_ShowsATokenFromAFileOrTheEnvironment(t *testing.T) {
	s := &shows{}
	addr := served(t, func(r grpc.ServiceRegistrar) { troupev1.RegisterOrchestratorServiceServer(r, s) })
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("tr_ofthefile\n"), 0o600))
	ask := func(args ...string) (int, string) {
		var out, told bytes.Buffer
		return run(t.Context(), append([]string{"get", "agents"}, args...), terminal{out: &out, err: &told}), told.String()
	}
	code, told := ask("--addr", addr)
	require.Equal(t, process.ExitOK, code, told)
	require.Empty(t, s.last)
	t.Setenv("TROUPE_TOKEN", "tr_oftheenvironment")
	code, told = ask("--addr", addr)
	require.Equal(t, process.ExitOK, code, told)
	require.Equal(t, []string{"Bearer tr_oftheenvironment"}, s.last)
	code, told = ask("--addr", addr, "--token-file", file)
	require.Equal(t, process.ExitOK, code, told)
	require.Equal(t, []string{"Bearer tr_ofthefile"}, s.last)
	t.Setenv("TROUPE_TOKEN_FILE", file)
	code, told = ask("--addr", addr)
	require.Equal(t, process.ExitOK, code, told)
	require.Equal(t, []string{"Bearer tr_ofthefile"}, s.last)

	code, told = ask("--addr", "192.0.2.1:7400")
	require.Equal(t, process.ExitUsage, code)
	require.Contains(t, told, "--token-file: others could read the token on its way to 192.0.2.1:7400, which is in plain text; add --tls-ca")
	code, told = ask("--addr", addr, "--token", "tr_x")
	require.Equal(t, process.ExitUsage, code, "there is no flag for the token itself")
	require.NotContains(t, told, "tr_x")
}
