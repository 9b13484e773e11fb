// Package failure gives every error a mode, which says what went wrong and whether to retry.
//
// An Error has two texts. Message is one sentence for the caller and may be sent over the network. Cause is the
// underlying error and belongs in the log only.
package failure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Error is an error with a mode. It is immutable: methods such as With and Because return copies.
type Error struct {
	Mode    Mode
	Op      string            // operation that failed, such as "memory.CommitStep"
	Message string            // what is wrong and what to do, for the caller
	Facts   map[string]string // details that a caller may act on
	Cause   error             // underlying error, for the log; never sent
}

// New returns an error with a mode and a message for the caller.
func New(mode Mode, op, message string) *Error {
	return &Error{Mode: mode, Op: op, Message: message}
}

// Newf returns an error with a mode and a formatted message.
func Newf(mode Mode, op, format string, args ...any) *Error {
	return New(mode, op, fmt.Sprintf(format, args...))
}

// With returns a copy of e with one more fact.
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
	if e.IsFatal() {
		cause = &fatalError{cause}
	}
	c.Cause = cause
	return &c
}

// Error returns the text for logs: operation, mode, message and cause. For a failed run it also contains the stage
// and the trace.
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

// FromError returns the outermost Error in err's chain. If there is none, it returns a new Error whose message
// reveals nothing of err. Its mode is user_cancelled for a cancelled context, system_timeout for an expired one,
// and Unknown otherwise.
func FromError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, context.Canceled):
		return New(UserCancelled, "call", "the call was cancelled").Because(err)
	case errors.Is(err, context.DeadlineExceeded):
		return New(SystemTimeout, "call", "the deadline passed; the call may have taken effect").Because(err)
	}
	return New(Unknown, "call", "internal error; the server's log has the cause").Because(err)
}

// ModeOf returns the mode of the Error that FromError returns for err.
func ModeOf(err error) Mode { return FromError(err).Mode }

// Is reports whether err has one of the given modes.
func Is(err error, modes ...Mode) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return false
	}
	return slices.Contains(modes, e.Mode)
}

// PlainMessage returns the message of the outermost Error in err's chain, without operation, mode and cause. If
// there is no Error in the chain, it returns the text of err.
func PlainMessage(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	return err.Error()
}
