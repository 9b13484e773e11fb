// Package hookerror marks errors that a hook handler returned. Package hook wraps them, and package agent
// recognizes them.
package hookerror

import "errors"

// Error is an error that a hook handler returned.
type Error struct{ Err error }

func (e Error) Error() string { return e.Err.Error() }

// Unwrap returns the handler's own error.
func (e Error) Unwrap() error { return e.Err }

// Is reports whether a hook handler returned err. Such an error ends the turn, even if the agent tolerates failed
// steps (C-10).
func Is(err error) bool {
	_, ok := errors.AsType[Error](err)
	return ok
}
