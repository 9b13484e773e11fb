package llmtest

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/llmreplay"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// errorResponseTests tests how the adapter reads error responses.
var errorResponseTests = []suiteTest{
	{"HasTheRightKind", testErrorKinds},
	{"IsClassifiedWithoutABody", testUnknownErrorBody},
	{"IsReadOnlyPartly", testHugeErrorBody},
	{"ReportsTheRetryDelay", testRetryAfter},
	{"IsNotRetried", testNoRetries},
	{"DetectsAWebPage", testWebPage},
	{"DetectsAFailedConnection", testNoConnection},
}

// respondWithError responds with an error status and the provider's body for the kind of error.
func respondWithError(status int, kind llm.Kind, header ...string) responder {
	return func(rig *testbed, w *llmreplay.Writer, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		// The text contains the key, because some providers quote a rejected key.
		_, _ = w.Write(rig.Wire.ErrorBody(status, kind, "what is wrong with "+key))
	}
}

func testErrorKinds(rig *testbed) {
	for kind, statuses := range map[llm.Kind][]int{
		llm.BadRequest: {400, 422}, llm.ContextLength: {400}, llm.Authentication: {401}, llm.Credits: {402}, llm.Permission: {403},
		llm.NotFound: {404}, llm.RateLimit: {429}, llm.Unavailable: {500, 502, 503, 504, 529},
	} {
		for _, status := range statuses {
			all := rig.askHello(rig.open(llm.Timeouts{}, respondWithError(status, kind)))
			e := rig.requireFailure(all.Err, kind)
			require.Equal(rig, status, e.Status)
			require.Zero(rig, e.RetryAfter)
			require.ErrorContains(rig, all.Err, "what is wrong", "the log has the provider's own words")
			require.Empty(rig, all.Texts)
		}
	}
}

func testUnknownErrorBody(rig *testbed) {
	for _, body := range []string{"", "<html><body>no</body></html>", "null", `{"unknown":["form"]}`, "{"} {
		for status, kind := range map[int]llm.Kind{
			401: llm.Authentication, 403: llm.Permission, 429: llm.RateLimit, 400: llm.BadRequest, 502: llm.Unavailable,
		} {
			all := rig.askHello(rig.open(llm.Timeouts{}, func(_ *testbed, w *llmreplay.Writer, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = w.Write([]byte(body))
			}))
			require.Equal(rig, status, rig.requireFailure(all.Err, kind).Status, "body %q", body)
		}
	}
}

// testHugeErrorBody checks that a huge error response fills neither the memory nor the log of the worker.
func testHugeErrorBody(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{}, func(rig *testbed, w *llmreplay.Writer, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		for line := []byte(strings.Repeat("x", 1<<16)); r.Context().Err() == nil && rig.Context().Err() == nil; {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}))
	rig.requireFailure(all.Err, llm.Unavailable)
	require.Less(rig, len(all.Err.Error()), 128<<10)
}

func testRetryAfter(rig *testbed) {
	after := func(value string) time.Duration {
		all := rig.askHello(rig.open(llm.Timeouts{}, respondWithError(http.StatusTooManyRequests, llm.RateLimit, "Retry-After", value)))
		return rig.requireFailure(all.Err, llm.RateLimit).RetryAfter
	}
	require.Equal(rig, 7*time.Second, after("7"))
	require.Equal(rig, 1500*time.Millisecond, after("1.5"))
	require.InDelta(rig, 90, after(time.Now().Add(90*time.Second).UTC().Format(http.TimeFormat)).Seconds(), 10)
	for _, none := range []string{"0", "-5", "soon", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)} {
		require.Zero(rig, after(none), none)
	}
	require.Positive(rig, after(strconv.Itoa(1<<62)), "a time without end")
}

// testNoRetries checks that neither the adapter nor its SDK retries, because only llm.Retried may.
func testNoRetries(rig *testbed) {
	for n, status := range []int{429, 500, 503, 408, 409} {
		all := rig.askHello(rig.open(llm.Timeouts{}, respondWithError(status, llm.Unavailable)))
		require.Error(rig, all.Err)
		asked, _ := rig.requests()
		require.Len(rig, asked, n+1)
	}
}

func testWebPage(rig *testbed) {
	for _, kind := range []string{"text/html", "application/json", "text/event-stream"} {
		all := rig.askHello(rig.open(llm.Timeouts{}, func(_ *testbed, w *llmreplay.Writer, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write([]byte("<html><body>Please log in</body></html>"))
		}))
		require.Contains(rig, []llm.Kind{llm.Malformed, llm.Connection}, llm.KindOf(all.Err), "%v", all.Err)
	}
}

func testNoConnection(rig *testbed) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	m, err := rig.Open(rig.Name+"/"+modelName, closed.URL, key, llm.Timeouts{})
	require.NoError(rig, err, "nothing is sent before the model is asked")
	all := rig.askHello(m)
	require.Zero(rig, rig.requireFailure(all.Err, llm.Connection).Status)
}
