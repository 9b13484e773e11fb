package failure

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStopped_SaysWhyAContextWasEnded(t *testing.T) {
	broken := errors.New("the stream is gone")
	require.Equal(t, broken, Stopped(t.Context(), broken))

	ctx, end := context.WithCancelCause(t.Context())
	end(New(Fenced, "test", "somebody else has the turn"))
	err := Stopped(ctx, broken)
	require.True(t, Superseded(err), "%v", err)
	require.ErrorIs(t, err, broken)
	require.False(t, Superseded(broken))
	require.False(t, Superseded(New(ResourceAPI, "test", "down")))
}
