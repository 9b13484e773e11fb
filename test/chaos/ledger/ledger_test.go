package ledger_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/test/chaos/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) (*ledger.Ledger, ledger.Client) {
	t.Helper()
	l, err := ledger.New()
	require.NoError(t, err)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		require.NoError(t, l.Close())
	})
	return l, ledger.Client{URL: l.URL(), Worker: "w1"}
}

func TestLedger_RecordsCallsInOrder(t *testing.T) {
	l, c := start(t)
	first, err := c.Post(t.Context(), ledger.Call{Kind: ledger.Idempotent, Mark: "s/r", Step: 1, Key: "k"})
	require.NoError(t, err)
	require.Equal(t, "idempotent#1", first)
	again, err := c.Post(t.Context(), ledger.Call{Kind: ledger.Idempotent, Mark: "s/r", Step: 1, Key: "k"})
	require.NoError(t, err)
	require.Equal(t, first, again, "the same key has the same effect")
	other, err := c.Post(t.Context(), ledger.Call{Kind: ledger.Read, Mark: "s/r", Step: 1, Key: "k2"})
	require.NoError(t, err)
	require.Equal(t, "read#3", other)

	calls := l.Calls()
	require.Len(t, calls, 3)
	require.Equal(t, "w1", calls[2].Worker)
	require.False(t, calls[2].At.Before(calls[0].At))
}

// The ledger contains a held call even if its caller dies before the reply.
func TestLedger_CanPauseACall(t *testing.T) {
	l, c := start(t)
	hold := l.Hold(func(c ledger.Call) bool { return c.Kind == ledger.AtMostOnce })
	ctx, die := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Post(ctx, ledger.Call{Kind: ledger.AtMostOnce, Mark: "s/r"})
		ended <- err
	}()
	require.Equal(t, "s/r", (<-hold.Reached()).Mark)
	require.Len(t, l.Calls(), 1)
	die()
	require.ErrorIs(t, <-ended, context.Canceled)

	hold.Release()
	_, err := c.Post(t.Context(), ledger.Call{Kind: ledger.AtMostOnce, Mark: "s/r"})
	require.NoError(t, err, "a hold is for one call")
}
