package rpc

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// A call carries its run, and the server logs it. An invalid id is not logged.
func TestWithRun_AddsTheRunToCalls(t *testing.T) {
	var seen []string
	b := startTestServer(t, time.Second, func(ctx context.Context) (*troupev1.GetSessionResponse, error) {
		seen = append(seen, RunFromContext(ctx))
		return nil, failure.New(failure.NotFound, "memory.GetSession", "no such session")
	})
	root := strings.Repeat("1", 32)
	for _, ctx := range []context.Context{
		WithRun(t.Context(), root), t.Context(), WithRun(t.Context(), ""), WithRun(t.Context(), "a\nlie"),
		metadata.AppendToOutgoingContext(t.Context(), runMetadataKey, strings.Repeat("x", 32)),
	} {
		_, err := b.client.GetSession(ctx, &troupev1.GetSessionRequest{SessionId: "s"})
		require.Error(t, err)
	}
	require.Equal(t, root, seen[0])
	require.Equal(t, []any{root, nil}, []any{b.logs.All()[0].ContextMap()["root_trace_id"], b.logs.All()[1].ContextMap()["root_trace_id"]})
	for _, other := range seen[1:] {
		require.Empty(t, other)
	}
	require.NotContains(t, b.logs.All()[len(seen)-1].ContextMap(), "root_trace_id")
}
