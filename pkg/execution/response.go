package execution

import (
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Status says how the work of an agent ended (contract OC-28).
type Status string

// The statuses.
const (
	Success   Status = "success"
	Failed    Status = "error"
	Partly    Status = "partial"   // there is a result, and the agent came not to its end
	Waiting   Status = "pending"   // somebody is asked, and the step goes on with the answer
	Cancelled Status = "cancelled" // somebody ended it
)

// ErrorType says in one word what kind of thing went wrong (contract OC-28).
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

// Response is a result in the terms of OC-28. It has an Error when its status is Failed or
// Cancelled, and else a result, which may be empty text.
type Response struct {
	Status Status
	Result Result
	Error  *ResponseError
}

// ResponseError is why there is no result.
type ResponseError struct {
	Type        ErrorType
	Message     string
	Details     map[string]string
	Recoverable bool          // the same may go well later, or elsewhere
	RetryAfter  time.Duration // not before; 0: nobody said
	TraceID     string        // where it happened; empty: not known
}

// StatusOf is how the work ended that led to a result.
func StatusOf(r Result) Status {
	switch {
	case r.Failure != nil && r.Failure.Mode == failure.UserCancelled:
		return Cancelled
	case r.Failure != nil:
		return Failed
	case r.InputRequired:
		return Waiting
	case r.Stopped || r.MaxIterations:
		return Partly
	default:
		return Success
	}
}

// ResponseOf is a result as a response.
func ResponseOf(r Result) Response {
	resp := Response{Status: StatusOf(r), Result: r}
	if f := r.Failure; f != nil {
		after, _ := failure.RetryAfter(f)
		resp.Error = &ResponseError{
			Type: TypeOf(f.Mode), Message: f.Message, Details: f.Facts, Recoverable: f.Recoverable(), RetryAfter: after,
			TraceID: f.Facts[failure.FactTrace],
		}
	}
	return resp
}

// errorTypes has the modes whose errors are of a kind; all others are errors of the execution.
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

// TypeOf is the kind of error that a mode of failure is.
func TypeOf(m failure.Mode) ErrorType {
	if t, ok := errorTypes[m]; ok {
		return t
	}
	return ExecutionError
}
