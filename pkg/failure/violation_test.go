package failure

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// detail is the violation in a status; nil: there is none.
func detail(t *testing.T, err error) *troupev1.StateViolation {
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
func TestToStatus_OfAWriteToStateOfAnotherHasADetailThatSaysWhose(t *testing.T) {
	want := &troupev1.StateViolation{Key: "user:name", Owner: "memory", Actor: "worker a"}
	for _, mode := range []Mode{StateViolation, PolicySecurity} {
		sent := ToStatus(New(mode, "test", "no").Owned("user:name", "memory", "worker a"))
		require.Empty(t, cmp.Diff(want, detail(t, sent), protocmp.Transform()))
		got, ok := errors.AsType[*Error](FromStatus("test", sent))
		require.True(t, ok)
		require.Equal(t, map[string]string{"key": "user:name", "owner": "memory", "actor": "worker a"}, got.Facts)
	}
	for _, other := range []*Error{New(StateViolation, "test", "no"), New(PolicySecurity, "test", "no").With("key", "k"), New(UserPermission, "test", "no").Owned("k", "memory", "a")} {
		require.Nil(t, detail(t, ToStatus(other)))
	}
}

// The detail alone is enough for whoever reads it.
func TestFromStatus_ReadsAViolation(t *testing.T) {
	st, err := status.New(codes.PermissionDenied, "not yours").WithDetails(&troupev1.StateViolation{Key: "history", Owner: "memory", Actor: "b"})
	require.NoError(t, err)
	got, ok := errors.AsType[*Error](FromStatus("test", st.Err()))
	require.True(t, ok)
	require.Equal(t, New(StateViolation, "test", "not yours").Owned("history", "memory", "b"), got)
	require.True(t, got.Trespass())
}
