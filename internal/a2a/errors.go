package a2a

import (
	"errors"
	"strconv"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// errorCodes maps failure modes to A2A errors (LP-38). All other modes are internal to the mesh. They become a
// server error if a retry may succeed, and otherwise an internal error.
var errorCodes = map[failure.Mode]error{
	failure.NotFound: a2a.ErrTaskNotFound,

	failure.TurnNotOpen:    a2a.ErrUnsupportedOperation,
	failure.SessionClosed:  a2a.ErrUnsupportedOperation,
	failure.SessionDeleted: a2a.ErrUnsupportedOperation,

	failure.UserInvalidInput: a2a.ErrInvalidParams,
	failure.KeyReused:        a2a.ErrInvalidParams,

	failure.UserUnauthenticated: a2a.ErrUnauthenticated,
	failure.UserPermission:      a2a.ErrUnauthorized,
	failure.PolicySecurity:      a2a.ErrUnauthorized,
	failure.PolicyAllowlist:     a2a.ErrUnauthorized,
	failure.StateViolation:      a2a.ErrUnauthorized,

	failure.SessionFull:    a2a.ErrServerError,
	failure.NoWorker:       a2a.ErrServerError,
	failure.ResourceQuota:  a2a.ErrServerError,
	failure.ResourceMemory: a2a.ErrServerError,
	failure.PolicyBudget:   a2a.ErrServerError,
	failure.UserCancelled:  a2a.ErrServerError,
}

// toA2AError converts an error for an A2A client. The result contains the message of a failure, its reason, and
// whether a retry may succeed. The text of an error that is not a failure is dropped, because it may reveal
// internals.
func toA2AError(err error) error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*a2a.Error](err); ok {
		return known
	}
	err = grpcfailure.FromStatus("a2a", err)
	f := grpcfailure.FromProto(grpcfailure.ToProto(err)) // the text of an error that is not a failure is dropped here
	code, ok := errorCodes[f.Mode]
	if !ok {
		code = a2a.ErrInternalError
		if f.Mode.Retryable() {
			code = a2a.ErrServerError
		}
	}
	return a2a.NewError(code, f.Message).WithErrorInfoMeta(map[string]string{
		"mode": f.Mode.Reason(), "retryable": strconv.FormatBool(f.Mode.Retryable()),
	})
}

// newNotFoundError returns the error for an id to which no task belongs.
func newNotFoundError(id a2a.TaskID) error {
	return a2a.NewError(a2a.ErrTaskNotFound, "there is no task "+strconv.Quote(conversation.Truncate(string(id),
		64))+"; a task is kept for as long as the mesh keeps its trace")
}
