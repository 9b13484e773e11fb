package probe

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func getProbe(b *Board, path string) (int, string) {
	w := httptest.NewRecorder()
	b.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestBoard_IsReadyWhenEveryConditionHolds(t *testing.T) {
	b := NewBoard("etcd", "redis")
	var seen []bool
	b.OnChange(func(ready bool) { seen = append(seen, ready) })

	code, body := getProbe(b, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "etcd: not yet\nredis: not yet\n", body)

	require.True(t, b.Set("etcd", nil))
	require.Error(t, b.Ready())
	require.True(t, b.Set("redis", nil))
	require.NoError(t, b.Ready())
	require.False(t, b.Set("redis", nil), "nothing changed")
	code, body = getProbe(b, "/readyz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", body)

	require.True(t, b.Set("redis", errors.New("away")))
	require.Equal(t, []bool{false, false, true, true, false}, seen)
}

func TestBoard_DependenciesDecideNeitherLivenessNorStartup(t *testing.T) {
	b := NewBoard("redis")
	code, _ := getProbe(b, "/startupz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	b.Set("redis", nil)
	b.Set("redis", errors.New("away"))
	for path, want := range map[string]int{"/livez": 200, "/startupz": 200, "/readyz": 503} {
		code, _ := getProbe(b, path)
		require.Equal(t, want, code, path)
	}
}

func TestPart_ServesUntilItIsStopped(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- ServerPart(lis, NewBoard().Handler(http.NotFoundHandler())).Run(ctx, func() {})
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + lis.Addr().String() + "/livez")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	cancel()
	require.NoError(t, <-done)
}
