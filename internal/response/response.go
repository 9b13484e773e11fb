// Package response converts the result of a step to a response as contract OC-28 defines it: a status, and either
// a result or a typed error.
package response

import (
	"time"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Status says how a step ended.
type Status string

// The statuses.
const (
	Success   Status = "success"
	Failed    Status = "error"
	Partial   Status = "partial"   // the agent or its model was stopped before it finished, but has a result
	Pending   Status = "pending"   // the step waits for an answer
	Cancelled Status = "cancelled" // the caller cancelled the step
)

// ErrorType is the general category of an error.
type ErrorType string

// The types of errors.
const (
	ValidationError ErrorType = "validation"
	ExecutionError  ErrorType = "execution"
	TimeoutError    ErrorType = "timeout"
	ResourceError   ErrorType = "resource"
	PermissionError ErrorType = "permission"
	NetworkError    ErrorType = "network"
	UnknownError    ErrorType = "unknown"
)

// Response is the outcome of a step. Error is set if the status is Failed or Cancelled. With any other status
// there is a Result, whose text may be empty.
type Response struct {
	Status Status
	Result execution.Result
	Error  *Error
}

// Error says why a step has no result.
type Error struct {
	Type        ErrorType
	Message     string
	Details     map[string]string
	Recoverable bool          // whether the same step may succeed later, or at another instance
	RetryAfter  time.Duration // earliest time of the next try (0 means unknown)
	TraceID     string        // trace in which the error happened (empty means unknown)
}

// StatusOf returns the status for the result of a step.
func StatusOf(r execution.Result) Status {
	switch {
	case r.Failure != nil && r.Failure.Mode == failure.UserCancelled:
		return Cancelled
	case r.Failure != nil:
		return Failed
	case r.InputRequired:
		return Pending
	case r.Stopped || r.Incomplete != "":
		return Partial
	default:
		return Success
	}
}

// FromResult converts the result of a step to a response.
func FromResult(r execution.Result) Response {
	resp := Response{Status: StatusOf(r), Result: r}
	if f := r.Failure; f != nil {
		after, _ := failure.RetryAfter(f)
		resp.Error = &Error{
			Type: ErrorTypeOf(f.Mode), Message: f.Message, Details: f.Facts, Recoverable: f.Recoverable(), RetryAfter: after,
			TraceID: f.Facts[failure.FactTrace],
		}
	}
	return resp
}

// errorTypes maps failure modes to error types. A mode that is missing here is an ExecutionError.
var errorTypes = map[failure.Mode]ErrorType{
	failure.Unknown:        UnknownError,
	failure.UnknownOutcome: UnknownError,

	failure.AgentValidation:  ValidationError,
	failure.AgentContract:    ValidationError,
	failure.UserInvalidInput: ValidationError,
	failure.NotFound:         ValidationError,
	failure.KeyReused:        ValidationError,

	failure.AgentTimeout:   TimeoutError,
	failure.SystemTimeout:  TimeoutError,
	failure.PartialTimeout: TimeoutError,

	failure.SystemOOM:        ResourceError,
	failure.SystemDisk:       ResourceError,
	failure.ResourceTool:     ResourceError,
	failure.ResourceAPI:      ResourceError,
	failure.ResourceMemory:   ResourceError,
	failure.ResourceQuota:    ResourceError,
	failure.ResourceCircuit:  ResourceError,
	failure.PolicyBudget:     ResourceError,
	failure.PolicyRateLimit:  ResourceError,
	failure.NoWorker:         ResourceError,
	failure.InstanceFull:     ResourceError,
	failure.InstancePaused:   ResourceError,
	failure.InstanceDraining: ResourceError,
	failure.Overloaded:       ResourceError,

	failure.PolicySecurity:      PermissionError,
	failure.PolicyAllowlist:     PermissionError,
	failure.UserPermission:      PermissionError,
	failure.StateViolation:      PermissionError,
	failure.UserUnauthenticated: PermissionError,

	failure.SystemNetwork: NetworkError,
}

// ErrorTypeOf returns the error type for a failure mode.
func ErrorTypeOf(m failure.Mode) ErrorType {
	if t, ok := errorTypes[m]; ok {
		return t
	}
	return ExecutionError
}
