package client_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// inside is serve without a network, for a test whose time is not the real one.
func inside(t *testing.T, script func(int) (int, error)) (*orchestrator, *client.Client) {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	conn, err := grpc.NewClient("passthrough:inside", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	require.NoError(t, err)
	return serveAt(t, lis, conn, script)
}

// impatience is how long a client in these tests waits before it gives up.
const impatience = 300 * time.Millisecond

// An orchestrator that is restarted is away for seconds, at an address that refuses.
func TestTurn_OutlastsTheRestartOfItsOrchestrator(t *testing.T) {
	for name, c := range map[string]struct {
		items int
		away  time.Duration
	}{"from the start": {0, 2 * time.Second}, "in the middle": {3, 40 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				o, client := inside(t, func(stream int) (int, error) {
					switch {
					case stream == 1:
						return c.items, failure.New(failure.SystemNetwork, "test", "the orchestrator is stopping")
					case time.Since(began) < c.away:
						return 0, failure.New(failure.SystemNetwork, "test", "refused")
					default:
						return -1, nil
					}
				})
				got, err := collect(client.Turn(t.Context(), question()))
				require.NoError(t, err)
				complete(t, got, 0)
				require.Less(t, o.calls(), 60, "at a pace")
			})
		})
	}
}

// A mistyped address fails soon.
func TestTurn_AnAddressThatNeverAnsweredIsGivenUpSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := inside(t, func(int) (int, error) { return 0, failure.New(failure.SystemNetwork, "test", "refused") })
		began := time.Now()
		_, err := collect(c.Turn(t.Context(), question()))
		require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "%v", err)
		require.Less(t, time.Since(began), 6*time.Second)
	})
}

// The turn of an orchestrator that was killed is taken over by the same request, once its
// lease has run out; a watching client cannot take it over.
func TestTurn_SendsTheRequestAgainWhenTheTurnIsOrphaned(t *testing.T) {
	const lease = 30 * time.Second
	for name, items := range map[string]int{"from the start": 0, "in the middle": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				orphaned := failure.New(failure.TraceOrphaned, "test", "no orchestrator drives it").With("retry_after", lease.String())
				o, c := inside(t, func(int) (int, error) {
					if time.Since(began) < lease {
						return items, orphaned
					}
					return -1, nil
				})
				got, err := collect(c.Turn(t.Context(), question()))
				require.NoError(t, err)
				complete(t, got, 0)
				require.Empty(t, o.watches)
				require.Greater(t, len(o.requests), 1)
				for _, r := range o.requests {
					require.Equal(t, o.requests[0].GetRequestId(), r.GetRequestId())
				}
			})
		})
	}
	o, c := serve(t, func(int) (int, error) {
		return 0, failure.New(failure.TraceOrphaned, "test", "no orchestrator drives it")
	})
	_, err := collect(c.Watch(t.Context(), traceID, 1))
	require.Equal(t, failure.TraceOrphaned, failure.ModeOf(err), "%v", err)
	require.Equal(t, 1, o.calls())
}

// Answers are sent again as a text is: whole, and under the same ids.
func TestTurn_SendsAnswersAgain(t *testing.T) {
	o, c := serve(t, func(stream int) (int, error) {
		if stream == 1 {
			return 3, failure.New(failure.TraceOrphaned, "test", "no orchestrator drives it")
		}
		return -1, nil
	})
	got, err := collect(c.Turn(t.Context(), &troupev1.OrchestrateRequest{
		SessionId: "s1", Input: &troupev1.OrchestrateRequest_Answers{Answers: &troupev1.Answers{
			Answers: []*troupev1.CallAnswer{{Id: "1-1-2", Verdict: troupev1.CallVerdict_CALL_VERDICT_APPROVE}},
		}},
	}))
	require.NoError(t, err)
	complete(t, got, 0)
	require.Len(t, o.requests, 2)
	require.Empty(t, cmp.Diff(o.requests[0], o.requests[1], protocmp.Transform()))
	require.Len(t, o.requests[1].GetAnswers().GetAnswers(), 1)
}
