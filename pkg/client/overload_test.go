package client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// The client waits for the delay that an overloaded orchestrator requests, and retries with the same ids. It gives
// up after three retries, or at once if its deadline comes before the delay is over.
func TestTurn_RetriesOverloadAfterNamedDelay(t *testing.T) {
	const after = 4 * time.Second
	full := failure.New(failure.Overloaded, "test", "full").WithRetryAfter(after)
	for name, c := range map[string]struct {
		rejections int
		timeout    time.Duration // of the call (0 means none)
		tries      int
		fails      bool
	}{
		"once":               {rejections: 1, tries: 2},
		"three times":        {rejections: 3, tries: 4},
		"too often":          {rejections: 4, tries: 4, fails: true},
		"no time to retry":   {rejections: 1, timeout: 3 * time.Second, tries: 1, fails: true},
		"time for one retry": {rejections: 9, timeout: 7 * time.Second, tries: 2, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, client := serveInMemory(t, func(stream int) (int, error) {
					if stream <= c.rejections {
						return 0, full
					}
					return -1, nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				if c.timeout > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), c.timeout)
				}
				defer cancel()
				var waits []time.Duration
				began := time.Now()
				got, err := collectEvents(client.WithWaitNotice(func(rejection error, d time.Duration) {
					require.ErrorContains(t, rejection, "full")
					waits = append(waits, d)
				}).Turn(ctx, newRequest()))
				require.Equal(t, c.tries, o.streamCount())
				require.Len(t, waits, c.tries-1)
				total := time.Duration(0)
				for _, d := range waits {
					require.GreaterOrEqual(t, d, after)
					require.LessOrEqual(t, d, after*5/4)
					total += d
				}
				require.Equal(t, total, time.Since(began))
				for _, r := range o.requests {
					require.Equal(t, o.requests[0].GetRequestId(), r.GetRequestId())
				}
				if c.fails {
					require.Equal(t, failure.Overloaded, failure.ModeOf(err), "%v", err)
					return
				}
				require.NoError(t, err)
				requireComplete(t, got, 0)
			})
		})
	}
}

// A rejection without a delay is not retried.
func TestTurn_DoesNotRetryOverloadWithoutDelay(t *testing.T) {
	o, c := serveOrchestrator(t, func(int) (int, error) { return 0, failure.New(failure.Overloaded, "test", "full") })
	_, err := collectEvents(c.Turn(t.Context(), newRequest()))
	require.Equal(t, failure.Overloaded, failure.ModeOf(err), "%v", err)
	require.Equal(t, 1, o.streamCount())
}
