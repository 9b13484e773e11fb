package llm

import (
	"errors"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Kind classifies an error of a provider (CO-13).
type Kind string

// The kinds of errors.
const (
	Authentication  Kind = "authentication" // the key is missing, wrong or withdrawn
	Permission      Kind = "permission"     // the key is right, but may not do this
	RateLimit       Kind = "rate_limit"     // too many requests or tokens in a period of time
	Credits         Kind = "credits"        // the account has no money or quota left
	PaidModel       Kind = "paid_model"     // the model is not for free accounts
	BadRequest      Kind = "bad_request"    // the provider rejects the content of the request
	ContextLength   Kind = "context_length" // the request is longer than the model can read
	NotFound        Kind = "not_found"      // there is no such model, or the account may not use it
	Connection      Kind = "connection"     // the connection failed, was cut, or became unresponsive
	Unavailable     Kind = "unavailable"    // the provider is overloaded or has failed
	Malformed       Kind = "malformed"      // the provider's answer cannot be read
	ContentFiltered Kind = "refused"        // the provider's content filter stopped the answer
	CircuitOpen     Kind = "circuit"        // the provider was not called, because its last requests failed (see Guarded)
)

// kindProperties holds the properties of each kind of error: its failure mode, whether the same request may succeed a
// moment later (retryable), and whether it may succeed at another provider (failover).
var kindProperties = map[Kind]struct {
	mode                failure.Mode
	retryable, failover bool
}{
	Authentication:  {failure.AgentValidation, false, true},
	Permission:      {failure.AgentValidation, false, true},
	RateLimit:       {failure.ResourceAPI, true, true},
	Credits:         {failure.ResourceQuota, false, true},
	PaidModel:       {failure.AgentValidation, false, true},
	BadRequest:      {failure.UserInvalidInput, false, false},
	ContextLength:   {failure.UserInvalidInput, false, false},
	NotFound:        {failure.AgentValidation, false, true},
	Connection:      {failure.ResourceAPI, true, true},
	Unavailable:     {failure.ResourceAPI, true, true},
	Malformed:       {failure.ResourceAPI, false, true},
	ContentFiltered: {failure.UserInvalidInput, false, false},
	CircuitOpen:     {failure.ResourceCircuit, false, true},
}

// Retryable reports whether the same request may succeed a moment later.
func (k Kind) Retryable() bool { return kindProperties[k].retryable }

// AllowsFailover reports whether the same request may succeed at another provider.
func (k Kind) AllowsFailover() bool { return kindProperties[k].failover }

// isOutage reports whether an error of this kind suggests that other requests to the provider fail too.
func (k Kind) isOutage() bool { return kindProperties[k].mode == failure.ResourceAPI }

// Error describes an error of a provider for programs. It is the cause of the failure.Error that a model yields.
// Find it with errors.AsType[*llm.Error].
type Error struct {
	Provider   string
	Kind       Kind
	Status     int           // HTTP status (0 if there was no response)
	RetryAfter time.Duration // delay that the provider requested (0 if none)
	Cause      error         // the provider's own text; for the log
}

// Error returns the text for the log, which includes the provider's own text.
func (e *Error) Error() string {
	text := e.Provider + ": " + string(e.Kind)
	if e.Status != 0 {
		text += fmt.Sprintf(" (%d)", e.Status)
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// KindOf returns the kind of the Error in err's chain ("" if there is none).
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}
