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

// serveInMemory does the same as serveOrchestrator over connections in memory, so that synctest can control the
// time.
func serveInMemory(t *testing.T, script func(int) (int, error)) (*fakeOrchestrator, *client.Client) {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	conn, err := grpc.NewClient("passthrough:inside", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	require.NoError(t, err)
	return serveOrchestratorAt(t, lis, conn, script)
}

// shortPatience is how long a client in these tests waits for progress before it gives up.
const shortPatience = 300 * time.Millisecond

// The client keeps trying during the restart of an orchestrator, while its address rejects connections for
// seconds.
func TestTurn_OutlastsRestartOfOrchestrator(t *testing.T) {
	for name, c := range map[string]struct {
		items int
		away  time.Duration
	}{"from the start": {0, 2 * time.Second}, "in the middle": {3, 40 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				o, client := serveInMemory(t, func(stream int) (int, error) {
					switch {
					case stream == 1:
						return c.items, failure.New(failure.SystemNetwork, "test", "the orchestrator is stopping")
					case time.Since(began) < c.away:
						return 0, failure.New(failure.SystemNetwork, "test", "refused")
					default:
						return -1, nil
					}
				})
				got, err := collectEvents(client.Turn(t.Context(), newRequest()))
				require.NoError(t, err)
				requireComplete(t, got, 0)
				require.Less(t, o.streamCount(), 60, "at a pace")
			})
		})
	}
}

// The client gives up after a short time if the address has never responded, because the address may be mistyped.
func TestTurn_GivesUpSoonIfAddressNeverResponds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := serveInMemory(t, func(int) (int, error) { return 0, failure.New(failure.SystemNetwork, "test", "refused") })
		began := time.Now()
		_, err := collectEvents(c.Turn(t.Context(), newRequest()))
		require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "%v", err)
		require.Less(t, time.Since(began), 6*time.Second)
	})
}

// After an orchestrator was killed and its lease has expired, repeating the request makes another orchestrator
// take the turn over. A client that only watches cannot cause a takeover.
func TestTurn_RepeatsRequestOfOrphanedTurn(t *testing.T) {
	const lease = 30 * time.Second
	for name, items := range map[string]int{"from the start": 0, "in the middle": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				orphaned := failure.New(failure.TraceOrphaned, "test", "no orchestrator drives it").With("retry_after", lease.String())
				o, c := serveInMemory(t, func(int) (int, error) {
					if time.Since(began) < lease {
						return items, orphaned
					}
					return -1, nil
				})
				got, err := collectEvents(c.Turn(t.Context(), newRequest()))
				require.NoError(t, err)
				requireComplete(t, got, 0)
				require.Empty(t, o.watches)
				require.Greater(t, len(o.requests), 1)
				for _, r := range o.requests {
					require.Equal(t, o.requests[0].GetRequestId(), r.GetRequestId())
				}
			})
		})
	}
	o, c := serveOrchestrator(t, func(int) (int, error) {
		return 0, failure.New(failure.TraceOrphaned, "test", "no orchestrator drives it")
	})
	_, err := collectEvents(c.Watch(t.Context(), traceID, 1))
	require.Equal(t, failure.TraceOrphaned, failure.ModeOf(err), "%v", err)
	require.Equal(t, 1, o.streamCount())
}

// A request that answers pending calls is repeated completely and with the same ids, like a request with a text.
func TestTurn_RepeatsRequestWithAnswers(t *testing.T) {
	o, c := serveOrchestrator(t, func(stream int) (int, error) {
		if stream == 1 {
			return 3, failure.New(failure.TraceOrphaned, "test", "no orchestrator drives it")
		}
		return -1, nil
	})
	got, err := collectEvents(c.Turn(t.Context(), &troupev1.OrchestrateRequest{
		SessionId: "s1", Input: &troupev1.OrchestrateRequest_Answers{Answers: &troupev1.Answers{
			Answers: []*troupev1.CallAnswer{{Id: "1-1-2", Verdict: troupev1.CallVerdict_CALL_VERDICT_APPROVE}},
		}},
	}))
	require.NoError(t, err)
	requireComplete(t, got, 0)
	require.Len(t, o.requests, 2)
	require.Empty(t, cmp.Diff(o.requests[0], o.requests[1], protocmp.Transform()))
	require.Len(t, o.requests[1].GetAnswers().GetAnswers(), 1)
}
