// Package hookerror marks the errors of handlers: package hook wraps them, package agent recognizes them.
package hookerror

import "errors"

// Error is the error of a handler.
type Error struct{ Err error }

func (e Error) Error() string { return e.Err.Error() }

// Unwrap returns the handler's own error.
func (e Error) Unwrap() error { return e.Err }

// Is reports whether err comes from a handler. Such an error ends the turn, even of an agent that tolerates failed
// steps (C-10).
func Is(err error) bool {
	_, ok := errors.AsType[Error](err)
	return ok
}
