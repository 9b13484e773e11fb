package rpc

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// For every failure mode the client gets a code and a message but no cause, and the log contains the cause.
func TestServer_DoesNotSendTheCauseOfAFailure(t *testing.T) {
	const secret = "dial 10.0.0.7: password=hunter2"
	wrong := map[string]error{
		"an error of a library": errors.New(secret), "one that is wrapped": fmt.Errorf("memory: %w", errors.New(secret)),
		"the end of a context": fmt.Errorf("%s: %w", secret, context.DeadlineExceeded),
	}
	for number, name := range troupev1.FailureMode_name {
		mode := grpcfailure.FromProto(&troupev1.Failure{Mode: troupev1.FailureMode(number)}).Mode
		wrong[name] = failure.New(mode, "memory.Get", "it cannot be").Because(errors.New(secret))
	}
	var now error
	b := startTestServer(t, time.Second, func(context.Context) (*troupev1.GetSessionResponse, error) { return nil, now })
	for name, now1 := range wrong {
		now = now1
		_, err := b.client.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: "s"})
		st := status.Convert(err)
		require.NotEqual(t, codes.OK, st.Code(), name)
		require.NotContains(t, fmt.Sprint(err, st.Message(), st.Details()), "hunter2", name)
		var info *errdetails.ErrorInfo
		for _, d := range st.Details() {
			if i, ok := d.(*errdetails.ErrorInfo); ok {
				info = i
			}
		}
		require.Equal(t, grpcfailure.Domain, info.GetDomain(), name)
		logged := b.logs.All()
		require.Contains(t, logged[len(logged)-1].ContextMap()["error"], "hunter2", name)
	}
}
