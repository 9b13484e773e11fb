package a2a

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/bearer"
	"github.com/troupe-dev/troupe/internal/identity/token"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// fakeMesh is an orchestrator that knows one agent. It sends the caller of each new turn to callers, and then
// rejects the turn.
type fakeMesh struct {
	troupev1.UnimplementedOrchestratorServiceServer
	callers chan identity.Principal
}

func (*fakeMesh) ListAgents(context.Context, *troupev1.ListAgentsRequest) (*troupev1.ListAgentsResponse, error) {
	return &troupev1.ListAgentsResponse{Agents: []*troupev1.Agent{{Name: "research"}}}, nil
}

func (m *fakeMesh) Orchestrate(_ *troupev1.OrchestrateRequest, stream troupev1.OrchestratorService_OrchestrateServer) error {
	m.callers <- identity.PrincipalFromContext(stream.Context())
	return failure.New(failure.SessionClosed, "test", "not today")
}

// newTokenBridge serves a bridge to a mesh that accepts only ann's token. passes says whether the bridge forwards
// tokens. It returns the bridge's URL, the token, and a channel with the callers that start turns.
func newTokenBridge(t *testing.T, passes bool) (url, ann string, asked <-chan identity.Principal) {
	t.Helper()
	value, entry := token.New(token.Entry{Name: "ann", Tenant: "acme", Role: identity.Client})
	text, err := token.FormatFile(entry)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	clients, err := bearer.Open(bearer.Config{Tokens: file}, zap.NewNop())
	require.NoError(t, err)
	server, err := rpc.NewServer(telemetry.Discard(), rpc.Config{Authenticate: clients.Authenticate})
	require.NoError(t, err)
	m := &fakeMesh{callers: make(chan identity.Principal, 10)}
	troupev1.RegisterOrchestratorServiceServer(server, m)
	lis, err := rpc.Listen("test", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.ProcessPart(lis, time.Second).Run(ctx, func() {}) }()
	conn, err := rpc.Dial(lis.Addr().String(), telemetry.Discard())
	require.NoError(t, err)
	b := httptest.NewServer(New(Config{Client: client.New(conn), URL: "http://127.0.0.1", ForwardTokens: passes}).Handler())
	t.Cleanup(func() { b.Close(); require.NoError(t, conn.Close()); cancel(); require.NoError(t, <-done) })
	return b.URL, value.Reveal(), m.callers
}

// sendWithToken sends an HTTP request with a bearer token and returns the body of the response.
func sendWithToken(t *testing.T, method, url, shown, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("A2A-Version", "1.0")
	if shown != "" {
		req.Header.Set("Authorization", "Bearer "+shown)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text)
}

const (
	cardPath = "/.well-known/agent-card.json"
	hello    = `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`
)

// The mesh authenticates the callers of the bridge by the tokens that the bridge forwards. The bridge itself
// authenticates none of them.
func TestBridge_ForwardsTokens(t *testing.T) {
	url, ann, asked := newTokenBridge(t, true)
	require.Contains(t, sendWithToken(t, http.MethodPost, url, ann, hello), "not today")
	require.Equal(t, identity.Principal{Role: identity.Client, Name: "ann", Tenant: "acme"}, <-asked)
	for _, other := range []string{"", "x", ann + "x"} {
		answer := sendWithToken(t, http.MethodPost, url, other, hello)
		require.Contains(t, answer, "USER_UNAUTHENTICATED", other)
		require.NotContains(t, answer, ann)
	}
	require.Empty(t, asked)

	card := sendWithToken(t, http.MethodGet, url+cardPath, "", "")
	require.Regexp(t, `"securitySchemes": \{\s+"bearer"`, card, "it is for everybody")
	require.NotContains(t, card, "research")
	require.Contains(t, sendWithToken(t, http.MethodGet, url+cardPath, ann, ""), "research", "whom the mesh knows sees its agents")
}

// A bridge without ForwardTokens forwards no token.
func TestBridge_ForwardsNoTokenByDefault(t *testing.T) {
	url, ann, asked := newTokenBridge(t, false)
	require.Contains(t, sendWithToken(t, http.MethodPost, url, ann, hello), "USER_UNAUTHENTICATED")
	require.Empty(t, asked)
}
