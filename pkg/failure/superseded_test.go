package failure

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFromCause_ReturnsErrorOfCancelledContext(t *testing.T) {
	broken := errors.New("the stream is gone")
	require.Equal(t, broken, FromCause(t.Context(), broken))

	ctx, end := context.WithCancelCause(t.Context())
	end(New(Fenced, "test", "another orchestrator has the turn"))
	err := FromCause(ctx, broken)
	require.True(t, IsSuperseded(err), "%v", err)
	require.ErrorIs(t, err, broken)
	require.False(t, IsSuperseded(broken))
	require.False(t, IsSuperseded(New(ResourceAPI, "test", "down")))
}
