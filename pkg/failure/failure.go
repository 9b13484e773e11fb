// Package failure gives every error in the mesh a mode, and maps modes to gRPC codes in
// one table. Nothing else in the mesh mentions a gRPC code.
//
// An Error has two texts: Message is one sentence for whoever called, and goes over the
// wire; Cause is what happened underneath, and goes to the log only.
package failure

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Error is a failure with a mode. It is immutable: With and Because return copies.
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

// Error is the text for logs: operation, mode, message, for the failure of a run its stage and
// trace, and cause.
func (e *Error) Error() string {
	text := e.Op + ": "
	if e.Mode != Unknown {
		text += string(e.Mode) + ": "
	}
	text += e.Message + e.where()
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// ModeOf returns the mode of the outermost Error in err's chain, that of an ended context,
// or Unknown.
func ModeOf(err error) Mode { return classify(err).Mode }

// Is reports whether err is a failure of one of the given modes.
func Is(err error, modes ...Mode) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return false
	}
	return slices.Contains(modes, e.Mode)
}

// Plain is err for a person on this side of the wire: the message of the outermost Error
// in its chain, without operation and mode, and else the whole text.
func Plain(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	return err.Error()
}

// ToProto is err as it is stored and sent, within the rules that failure.proto has for its texts and
// facts: what is longer is cut. The cause of an Error, and everything of an error that is not one, is
// left out: only its place in the log knows it. Nil gives nil.
func ToProto(err error) *troupev1.Failure {
	if e, ok := errors.AsType[*Error](err); err == nil || ok && e == nil {
		return nil // a nil *Error in an error is none either
	}
	e := classify(err)
	return &troupev1.Failure{Mode: e.Mode.wire(), Op: cut(e.Op, maxOp), Message: cut(e.Message, maxMessage), Facts: bounded(e.Facts)}
}

// FromProto is the Error that ToProto was given, without its cause. Nil gives nil.
func FromProto(f *troupev1.Failure) *Error {
	if f == nil {
		return nil
	}
	return &Error{Mode: modeFromWire(f.GetMode()), Op: f.GetOp(), Message: f.GetMessage(), Facts: f.GetFacts()}
}
