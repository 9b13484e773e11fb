package failure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Req: OC-23
func TestTable_HasARowPerWireValueAndBack(t *testing.T) {
	for mode := range table {
		if mode != Unknown {
			require.NotZero(t, mode.wire(), "mode %q has no value in troupe.v1.FailureMode", mode)
		}
	}
	for number, name := range troupev1.FailureMode_name {
		_, ok := table[modeFromWire(troupev1.FailureMode(number))]
		require.True(t, ok, "%s has no row in the table", name)
	}
}

// Req: OC-24
func TestTable_RetryableAndTerminalAreAsTheContractSays(t *testing.T) {
	retryable := []Mode{
		SystemNetwork, SystemTimeout, ResourceTool, ResourceAPI, ResourceCircuit, PolicyRateLimit, AgentTimeout,
		PartialToolFailures, PartialStepFailures, PartialTimeout,
	}
	terminal := []Mode{PolicySecurity, PolicyBudget, PolicyAllowlist, SystemCrash, SystemOOM, UserCancelled, AgentContract}
	for _, m := range retryable {
		require.True(t, m.Retryable(), "%s", m)
	}
	for _, m := range terminal {
		require.True(t, m.Terminal(), "%s", m)
	}
	partial := []Mode{PartialToolFailures, PartialStepFailures, PartialTimeout, AgentTimeout, SystemTimeout, ResourceQuota}
	for m := range table {
		require.False(t, m.Retryable() && m.Terminal(), "%s is both", m)
		require.Equal(t, slices.Contains(partial, m), m.Partial(), "%s", m)
	}
}

func TestStatus_RoundTripsWithoutTheCause(t *testing.T) {
	sent := New(SessionBusy, "memory.BeginTurn", "another turn is open").With("turn_id", "t1").Because(io.ErrUnexpectedEOF)
	wire := ToStatus(fmt.Errorf("wrapped: %w", sent))

	require.Equal(t, codes.Aborted, status.Code(wire))
	require.NotContains(t, wire.Error(), "EOF")
	var info *errdetails.ErrorInfo
	for _, d := range status.Convert(wire).Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok {
			info = i
		}
	}
	require.Equal(t, "SESSION_BUSY", info.GetReason())
	require.Equal(t, Domain, info.GetDomain())

	got, ok := errors.AsType[*Error](FromStatus("client", wire))
	require.True(t, ok)
	require.Empty(t, cmp.Diff(sent, got, cmpopts.IgnoreFields(Error{}, "Cause")))
	require.NoError(t, got.Cause)
}

func TestToStatus_TellsNothingOfWhatItDoesNotKnow(t *testing.T) {
	err := ToStatus(errors.New("dial 10.0.0.7: password=hunter2"))
	require.Equal(t, codes.Internal, status.Code(err))
	require.NotContains(t, fmt.Sprint(err, status.Convert(err).Details()), "hunter2")
	require.Equal(t, codes.Canceled, status.Code(ToStatus(context.Canceled)))
	require.Equal(t, codes.DeadlineExceeded, status.Code(ToStatus(context.DeadlineExceeded)))
	require.NoError(t, ToStatus(nil))
}

func TestFromStatus_OfOthersGetsTheNearestMode(t *testing.T) {
	require.True(t, Is(FromStatus("op", status.Error(codes.Unavailable, "proxy")), SystemNetwork))
	require.True(t, Is(FromStatus("op", status.Error(codes.NotFound, "no")), NotFound))
	require.Equal(t, io.EOF, FromStatus("op", io.EOF))
	require.NoError(t, FromStatus("op", nil))
}

func TestError_IsImmutable(t *testing.T) {
	e := New(NotFound, "op", "no").With("a", "1")
	_ = e.With("b", "2").Because(io.EOF)
	require.Equal(t, map[string]string{"a": "1"}, e.Facts)
	require.NoError(t, e.Cause)
	require.Equal(t, "op: not_found: no", e.Error())
}

func TestRetry_GoesOnUntilItWorksOrMustStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		got, err := Retry(t.Context(), func(context.Context) (int, error) {
			if tries++; tries < 5 {
				return 0, New(SystemNetwork, "op", "away")
			}
			return tries, nil
		})
		require.NoError(t, err)
		require.Equal(t, 5, got)

		tries = 0
		_, err = Retry(t.Context(), func(context.Context) (int, error) { tries++; return 0, New(NotFound, "op", "no") })
		require.True(t, Is(err, NotFound))
		require.Equal(t, 1, tries)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		_, err = Retry(ctx, func(context.Context) (int, error) { return 0, New(SystemNetwork, "op", "away") })
		require.True(t, Is(err, SystemNetwork), "the last error, not the context's")
		require.Equal(t, time.Minute, time.Since(start))
	})
}

// Who knows nothing of our facts is told in google.rpc.RetryInfo when to ask again.
func TestStatus_SaysWhenToAskAgain(t *testing.T) {
	said := New(Overloaded, "test", "full").After(1500 * time.Millisecond)
	sent := ToStatus(said)
	after, ok := RetryAfter(FromStatus("test", sent))
	require.True(t, ok)
	require.Equal(t, 1500*time.Millisecond, after)
	st, _ := status.FromError(sent)
	require.Equal(t, codes.ResourceExhausted, st.Code())
	var info *errdetails.RetryInfo
	for _, d := range st.Details() {
		if found, ok := d.(*errdetails.RetryInfo); ok {
			info = found
		}
	}
	require.Equal(t, 1500*time.Millisecond, info.GetRetryDelay().AsDuration())

	for _, says := range []error{New(Overloaded, "test", "full"), said.With("retry_after", "soon"), said.With("retry_after", "-1s"), errors.New("else")} {
		_, ok := RetryAfter(says)
		require.False(t, ok, "%v", says)
	}
}
