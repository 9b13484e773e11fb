package a2a

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/troupe-dev/troupe/pkg/client"
)

// The bridge answers any body on any path without a panic, whether the mesh is reachable or not.
func FuzzHandler(f *testing.F) {
	for _, body := range []string{
		"", "{}", "[]", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}}`,
		`{"jsonrpc":"2.0","id":{},"method":"message/send","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"hi"}]}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"\u0000"}}`, `{"jsonrpc":"2.0","method":"GetTask","params":[[[[]]]]}`,
	} {
		for path := range paths {
			f.Add(uint8(path), []byte(body))
		}
	}
	conn, err := grpc.NewClient("passthrough:///127.0.0.1:1", grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, conn.Close()) })
	handler := New(Config{Client: client.New(conn), URL: "http://127.0.0.1:7410"}).Handler()
	f.Fuzz(func(t *testing.T, path uint8, body []byte) {
		p := paths[int(path)%len(paths)]
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // the client waits until the mesh is reachable
		defer cancel()
		req := httptest.NewRequestWithContext(ctx, p.method, "http://127.0.0.1:7410"+p.path, bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("A2A-Version", p.version)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, req)
		require.NotZero(t, answer.Code)
		require.NotContains(t, answer.Body.String(), "goroutine ")
	})
}

var paths = []struct{ method, path, version string }{
	{http.MethodPost, "/", "1.0"},
	{http.MethodPost, "/", "0.3"},
	{http.MethodPost, "/message:send", "1.0"},
	{http.MethodPost, "/v1/message:send", "0.3"},
	{http.MethodGet, "/tasks/x", "1.0"},
	{http.MethodPost, "/tasks/x:cancel", "1.0"},
	{http.MethodGet, "/.well-known/agent-card.json", ""},
}
