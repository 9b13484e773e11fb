// Package failure gives every error a mode, which says what went wrong and whether to try again.
//
// An Error has two texts. Message is one sentence for the caller and may be sent over the network.
// Cause is what happened underneath and belongs in the log only.
package failure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Error is a failure with a mode. It is immutable: With, Because and their kind return copies.
type Error struct {
	Mode    Mode
	Op      string            // what was being done, such as "memory.CommitStep"
	Message string            // for the caller: what is wrong, and the way out
	Facts   map[string]string // details that a caller may act on
	Cause   error             // for the log; never sent
}

// New returns an error of the given mode with a message for the caller.
func New(mode Mode, op, message string) *Error {
	return &Error{Mode: mode, Op: op, Message: message}
}

// Newf is New with a formatted message.
func Newf(mode Mode, op, format string, args ...any) *Error {
	return New(mode, op, fmt.Sprintf(format, args...))
}

// With returns a copy of e that also has the given fact.
func (e *Error) With(key, value string) *Error {
	c := *e
	c.Facts = maps.Clone(e.Facts)
	if c.Facts == nil {
		c.Facts = map[string]string{}
	}
	c.Facts[key] = value
	return &c
}

// Because returns a copy of e with the given cause.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.Cause = cause
	return &c
}

// Error returns the text for logs: operation, mode, message and cause. A failure of a run also
// names its stage and its trace.
func (e *Error) Error() string {
	text := e.Op + ": "
	if e.Mode != Unknown {
		text += string(e.Mode) + ": "
	}
	text += e.Message + e.runText()
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// FromError returns the outermost Error in err's chain. An error without one becomes an Error whose
// message discloses nothing of it: a cancelled context has the mode user_cancelled, an expired one
// system_timeout, and every other error Unknown.
func FromError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, context.Canceled):
		return New(UserCancelled, "call", "the call was cancelled").Because(err)
	case errors.Is(err, context.DeadlineExceeded):
		return New(SystemTimeout, "call", "the deadline passed; what was asked for may have happened").Because(err)
	}
	return New(Unknown, "call", "internal error; the server's log has the cause").Because(err)
}

// ModeOf returns the mode that FromError finds for err.
func ModeOf(err error) Mode { return FromError(err).Mode }

// Is reports whether err is a failure of one of the given modes.
func Is(err error, modes ...Mode) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return false
	}
	return slices.Contains(modes, e.Mode)
}

// Plain returns the message of the outermost Error in err's chain, without operation, mode and
// cause. An error without one returns its whole text.
func Plain(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	return err.Error()
}
