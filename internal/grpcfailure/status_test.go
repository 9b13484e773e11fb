package grpcfailure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Req: OC-23
func TestModes_HaveAProtoValueAndACode(t *testing.T) {
	for _, mode := range failure.Modes() {
		require.Contains(t, codeByMode, mode)
		if mode != failure.Unknown {
			require.NotZero(t, modeToProto(mode), "mode %q has no value in troupe.v1.FailureMode", mode)
		}
	}
	for number, name := range troupev1.FailureMode_name {
		require.Contains(t, failure.Modes(), modeFromProto(troupev1.FailureMode(number)), "%s has no row in the table", name)
	}
}

func TestStatus_RoundTripsWithoutTheCause(t *testing.T) {
	sent := failure.New(failure.SessionBusy, "memory.BeginTurn", "another turn is open").With("turn_id", "t1").Because(io.ErrUnexpectedEOF)
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

	got, ok := errors.AsType[*failure.Error](FromStatus("client", wire))
	require.True(t, ok)
	require.Empty(t, cmp.Diff(sent, got, cmpopts.IgnoreFields(failure.Error{}, "Cause")))
	require.NoError(t, got.Cause)
}

func TestToStatus_HidesTheTextOfOtherErrors(t *testing.T) {
	err := ToStatus(errors.New("dial 10.0.0.7: password=hunter2"))
	require.Equal(t, codes.Internal, status.Code(err))
	require.NotContains(t, fmt.Sprint(err, status.Convert(err).Details()), "hunter2")
	require.Equal(t, codes.Canceled, status.Code(ToStatus(context.Canceled)))
	require.Equal(t, codes.DeadlineExceeded, status.Code(ToStatus(context.DeadlineExceeded)))
	require.NoError(t, ToStatus(nil))
}

func TestFromStatus_MapsForeignStatusesToTheNearestMode(t *testing.T) {
	require.True(t, failure.Is(FromStatus("op", status.Error(codes.Unavailable, "proxy")), failure.SystemNetwork))
	require.True(t, failure.Is(FromStatus("op", status.Error(codes.NotFound, "no")), failure.NotFound))
	require.Equal(t, io.EOF, FromStatus("op", io.EOF))
	require.NoError(t, FromStatus("op", nil))
}

// A client that does not know the mesh's details finds the retry delay in google.rpc.RetryInfo.
func TestToStatus_HasTheRetryDelay(t *testing.T) {
	full := failure.New(failure.Overloaded, "test", "full").WithRetryAfter(1500 * time.Millisecond)
	sent := ToStatus(full)
	after, ok := failure.RetryAfter(FromStatus("test", sent))
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
}

// violationFromStatus returns the StateViolation detail of a status, or nil.
func violationFromStatus(t *testing.T, err error) *troupev1.StateViolation {
	t.Helper()
	require.Equal(t, codes.PermissionDenied, status.Code(err))
	for _, d := range status.Convert(err).Details() {
		if v, ok := d.(*troupev1.StateViolation); ok {
			return v
		}
	}
	return nil
}

// Req: SO-7
func TestToStatus_HasTheDetailOfAnOwnershipViolation(t *testing.T) {
	want := &troupev1.StateViolation{Key: "user:name", Owner: "memory", Actor: "worker a"}
	for _, mode := range []failure.Mode{failure.StateViolation, failure.PolicySecurity} {
		sent := ToStatus(failure.New(mode, "test", "no").WithOwner("user:name", "memory", "worker a"))
		require.Empty(t, cmp.Diff(want, violationFromStatus(t, sent), protocmp.Transform()))
		got, ok := errors.AsType[*failure.Error](FromStatus("test", sent))
		require.True(t, ok)
		require.Equal(t, map[string]string{"key": "user:name", "owner": "memory", "actor": "worker a"}, got.Facts)
	}
	for _, other := range []*failure.Error{failure.New(failure.StateViolation, "test", "no"), failure.New(failure.PolicySecurity, "test", "no").With("key",
		"k"), failure.New(failure.UserPermission, "test", "no").WithOwner("k", "memory", "a")} {
		require.Nil(t, violationFromStatus(t, ToStatus(other)))
	}
}

// A StateViolation detail without a Failure is enough to read a violation.
func TestFromStatus_ReadsAnOwnershipViolation(t *testing.T) {
	st, err := status.New(codes.PermissionDenied, "not yours").WithDetails(&troupev1.StateViolation{Key: "history", Owner: "memory", Actor: "b"})
	require.NoError(t, err)
	got, ok := errors.AsType[*failure.Error](FromStatus("test", st.Err()))
	require.True(t, ok)
	require.Equal(t, failure.New(failure.StateViolation, "test", "not yours").WithOwner("history", "memory", "b"), got)
	require.True(t, got.IsViolation())
}

// A client receives everything about a failed run except the cause, which is only for the server's log.
// Req: OC-20
func TestProto_KeepsStageAndTraceOfARun(t *testing.T) {
	const run = "0af7651916cd43dd8448eb211c80319c"
	cause := failure.New(failure.ResourceAPI, "llm.Generate", "the model is down").With("provider", "test").Because(io.ErrShortWrite)
	read := FromProto(ToProto(failure.WithRun("execute", run, fmt.Errorf("step 2: %w", cause))))
	require.EqualError(t, read, "llm.Generate: resource_api: the model is down (stage execute, trace "+run+")")
	require.True(t, read.Recoverable())
	require.Equal(t, map[string]string{"stage": "execute", "trace_id": run, "provider": "test"}, read.Facts)
}
