package response

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// A response has one of five statuses. A response without a result has an error with type, message, details,
// whether it is recoverable, the retry delay, and the trace.
// Req: OC-28
func TestResponse_HasAResultOrAnError(t *testing.T) {
	fails := func(mode failure.Mode) execution.Result {
		return execution.Result{Failure: failure.New(mode, "test", "no")}
	}
	for want, r := range map[Status]execution.Result{
		Success:   {Text: "Yes."},
		Partial:   {Text: "So far.", Incomplete: "max_iterations"},
		Pending:   {Text: "Which?", InputRequired: true},
		Failed:    fails(failure.AgentLogic),
		Cancelled: fails(failure.UserCancelled),
	} {
		resp := FromResult(r)
		require.Equal(t, want, resp.Status)
		require.Equal(t, want == Failed || want == Cancelled, resp.Error != nil, want)
		require.Equal(t, r, resp.Result)
	}
	require.Equal(t, Partial, StatusOf(execution.Result{Stopped: true}))
	require.Equal(t, Partial, StatusOf(execution.Result{Text: "So f", Incomplete: "length"}))
	require.Equal(t, []Status{"success", "error", "partial", "pending", "cancelled"}, []Status{Success, Failed, Partial, Pending, Cancelled})

	why := failure.WithRun("execute", "t1", failure.New(failure.ResourceAPI, "test", "down").With("model", "m").WithRetryAfter(3*time.Second))
	require.Equal(t, &Error{
		Type: ResourceError, Message: "down", Recoverable: true, RetryAfter: 3 * time.Second, TraceID: "t1",
		Details: map[string]string{"model": "m", "stage": "execute", "trace_id": "t1", "retry_after": "3s"},
	}, FromResult(execution.Result{Failure: why}).Error)
}

// Each failure mode has one of seven error types.
// Req: OC-28
func TestErrorTypeOf_HasATypeForEveryMode(t *testing.T) {
	seen := map[ErrorType]int{}
	for n := range troupev1.FailureMode_name {
		seen[ErrorTypeOf(grpcfailure.FromProto(&troupev1.Failure{Mode: troupev1.FailureMode(n)}).Mode)]++
	}
	require.Len(t, seen, 7)
	for _, kind := range []ErrorType{"validation", "execution", "timeout", "resource", "permission", "network", "unknown"} {
		require.Positive(t, seen[kind], kind)
	}
	for mode, want := range map[failure.Mode]ErrorType{
		failure.UserInvalidInput: ValidationError, failure.AgentLogic: ExecutionError, failure.AgentTimeout: TimeoutError,
		failure.ResourceTool: ResourceError, failure.PolicySecurity: PermissionError, failure.SystemNetwork: NetworkError, failure.Unknown: UnknownError,
	} {
		require.Equal(t, want, ErrorTypeOf(mode), mode)
	}
}
