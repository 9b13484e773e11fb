// Package response presents the result of a step in the terms of contract OC-28: a status, and either a result or a
// typed error.
package response

import (
	"time"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Status says how the work of an agent ended.
type Status string

// The statuses.
const (
	Success   Status = "success"
	Failed    Status = "error"
	Partial   Status = "partial"   // there is a result, but the agent was stopped before it finished
	Pending   Status = "pending"   // the step waits for an answer
	Cancelled Status = "cancelled" // a caller cancelled the step
)

// ErrorType says in one word what kind of thing went wrong.
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

// Response is the result of a step with its status. Error is set when the status is Failed or Cancelled. All other
// responses have a Result, whose text may be empty.
type Response struct {
	Status Status
	Result execution.Result
	Error  *Error
}

// Error says why there is no result.
type Error struct {
	Type        ErrorType
	Message     string
	Details     map[string]string
	Recoverable bool          // the same step may succeed later, or on another instance
	RetryAfter  time.Duration // earliest time of the next try (0 means unknown)
	TraceID     string        // trace in which it happened (empty means unknown)
}

// StatusOf returns how the work that led to a result ended.
func StatusOf(r execution.Result) Status {
	switch {
	case r.Failure != nil && r.Failure.Mode == failure.UserCancelled:
		return Cancelled
	case r.Failure != nil:
		return Failed
	case r.InputRequired:
		return Pending
	case r.Stopped || r.MaxIterations:
		return Partial
	default:
		return Success
	}
}

// FromResult returns a result as a response.
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

// errorTypes maps modes to types. A mode that it lacks is an ExecutionError.
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

// ErrorTypeOf returns the type of error for a mode of failure.
func ErrorTypeOf(m failure.Mode) ErrorType {
	if t, ok := errorTypes[m]; ok {
		return t
	}
	return ExecutionError
}
