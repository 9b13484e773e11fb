package turncred

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/audit/audittest"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/rate"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/turnctx"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Callers that guess credentials at the client port fail authentication and are soon rate limited. Their calls
// fail because of authentication and not because of the called method (guarantees S6, S10).
func TestAuthenticate_LimitsGuesses(t *testing.T) {
	log, entries := audittest.NewLog(t)
	tel := telemetry.Discard()
	tel.Audit = log

	orchestrator := newMesh(t, "example.org").orchestrator(t)
	ended, err := orchestrator.Issue(testTurn(), time.Now().Add(-Grace))
	require.NoError(t, err)
	const guesses = 3
	server, err := rpc.NewServer(tel, rpc.Config{
		Authenticate: Authenticate(orchestrator, rpc.PrincipalFromCertificate), Rates: rate.New(rate.Table{rate.Failures: {Rate: 0.001, Burst: guesses}}),
	})
	require.NoError(t, err)
	lis, err := rpc.Listen("--grpc-addr", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.ProcessPart(lis, time.Second).Run(ctx, func() {}) }()
	conn, err := rpc.Dial(lis.Addr().String(), telemetry.Discard())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()); cancel(); require.NoError(t, <-done) }()

	for n, credential := range []string{"garbage", ended, "", "garbage", ended} {
		as := metadata.AppendToOutgoingContext(t.Context(), turnctx.CredentialKey, credential)
		err := conn.Invoke(as, troupev1.MemoryService_CommitStep_FullMethodName, &troupev1.CommitStepRequest{}, &troupev1.CommitStepResponse{})
		want := failure.UserUnauthenticated
		if n >= guesses {
			want = failure.PolicyRateLimit
		}
		require.True(t, failure.Is(grpcfailure.FromStatus("test", err), want), "%d: %v", n, err)
	}

	rejections := entries()
	require.Len(t, rejections, guesses)
	for _, e := range rejections {
		require.Equal(t, audit.Denied, e.Kind)
		require.Equal(t, string(identity.Anybody), e.Actor)
		require.Equal(t, string(failure.UserUnauthenticated), e.Result)
	}
}
