// Package hookerror marks errors that a hook handler returned. Package hook wraps them, and package agent
// recognizes them.
package hookerror

import (
	"errors"
	"fmt"
	"maps"

	"github.com/troupe-dev/troupe/pkg/failure"
)

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

// Wrap adds the name of the handler to its error, as its fact handler. A failure.Error is written for the user, who reads
// its message as it is (CO-75). Any other error may contain secrets, so its text is left out.
func Wrap(handler string, err error) error {
	mode, message := failure.ModeOf(err), fmt.Sprintf("the handler %s failed and gave no reason; the log of the agent has the error", handler)
	own, isForUser := errors.AsType[*failure.Error](err)
	switch {
	case isForUser && own.Mode != failure.Unknown:
		message = own.Message
	case mode == failure.Unknown:
		mode = failure.AgentLogic
	default: // the context ended
		message = fmt.Sprintf("the handler %s failed: %s", handler, failure.PlainMessage(err))
	}
	named := failure.New(mode, "hook."+handler, message).Because(Error{Err: err})
	if isForUser {
		named.Facts = maps.Clone(own.Facts)
	}
	return named.With("handler", handler)
}
