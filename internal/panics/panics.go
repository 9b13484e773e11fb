// Package panics turns panics into errors, so that a bug in one turn does not end the process and the
// other turns with it.
package panics

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// panicError is the cause of an error that NewError made from a panic.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }

// NewError returns the error for a recovered panic. Its message does not disclose the panic; its cause holds the
// panic value and the stack. Call it in the function that called recover, so that the stack is the right one.
func NewError(op string, value any) *failure.Error {
	return failure.New(failure.Unknown, op, "internal error; the server's log has the cause").Because(&panicError{value, debug.Stack()})
}

// Is reports whether err was made from a panic.
func Is(err error) bool {
	_, ok := errors.AsType[*panicError](err)
	return ok
}

// Recover turns a panic of the function that defers it into that function's error:
//
//	defer panics.Recover("turn", &err)
func Recover(op string, err *error) {
	if p := recover(); p != nil {
		*err = NewError(op, p)
	}
}

// Guard runs the body of a goroutine. If it panics, Guard calls fail with the error, so that the caller can stop
// the other goroutines of the turn or call.
func Guard(op string, fail func(error), run func()) {
	var err error
	defer func() {
		if err != nil {
			fail(err)
		}
	}()
	defer Recover(op, &err)
	run()
}
