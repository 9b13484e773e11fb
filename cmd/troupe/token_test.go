package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/clitest"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/process"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// tokenRecorder is an orchestrator that records the tokens of its callers.
type tokenRecorder struct {
	troupev1.UnimplementedOrchestratorServiceServer
	lastTokens []string
}

func (t *tokenRecorder) ListAgents(ctx context.Context, _ *troupev1.ListAgentsRequest) (*troupev1.ListAgentsResponse, error) {
	t.lastTokens = metadata.ValueFromIncomingContext(ctx, "authorization")
	return &troupev1.ListAgentsResponse{}, nil
}

func TestServer_SendsTokenFromFileOrEnvironment(t *testing.T) {
	s := &tokenRecorder{}
	addr := clitest.Serve(t, func(r grpc.ServiceRegistrar) { troupev1.RegisterOrchestratorServiceServer(r, s) })
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("tr_ofthefile\n"), 0o600))
	ask := func(args ...string) (int, string) {
		var out, told bytes.Buffer
		return run(t.Context(), append([]string{"get", "agents"}, args...), console.Terminal{Out: &out, Err: &told}), told.String()
	}
	code, told := ask("--addr", addr)
	require.Equal(t, process.ExitOK, code, told)
	require.Empty(t, s.lastTokens)
	t.Setenv("TROUPE_TOKEN", "tr_oftheenvironment")
	code, told = ask("--addr", addr)
	require.Equal(t, process.ExitOK, code, told)
	require.Equal(t, []string{"Bearer tr_oftheenvironment"}, s.lastTokens)
	code, told = ask("--addr", addr, "--token-file", file)
	require.Equal(t, process.ExitOK, code, told)
	require.Equal(t, []string{"Bearer tr_ofthefile"}, s.lastTokens)
	t.Setenv("TROUPE_TOKEN_FILE", file)
	code, told = ask("--addr", addr)
	require.Equal(t, process.ExitOK, code, told)
	require.Equal(t, []string{"Bearer tr_ofthefile"}, s.lastTokens)

	code, told = ask("--addr", "192.0.2.1:7400")
	require.Equal(t, process.ExitUsage, code)
	require.Contains(t, told, "--token-file: others could read the token on its way to 192.0.2.1:7400, which is in plain text; add --tls-ca")
	code, told = ask("--addr", addr, "--token", "tr_x")
	require.Equal(t, process.ExitUsage, code, "there is no flag for the token itself")
	require.NotContains(t, told, "tr_x")
}
