package llm_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/llm"
)

// The client does not send the key to the target of a redirect. The test suite in llmtest tests the timeouts.
func TestNewHTTPClient_SendsNoKeyToARedirectTarget(t *testing.T) {
	var reached atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	t.Cleanup(other.Close)
	first := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(first.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, first.URL, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("X-Api-Key", "sk-1234")
	_, err = llm.NewHTTPClient(llm.Timeouts{}).Do(req) //nolint:bodyclose // there is none
	require.ErrorContains(t, err, "redirects to "+other.Listener.Addr().String())
	require.False(t, reached.Load())
}
