package failure

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// panicked is the cause of an error that was a panic.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }

// Panicked is what was recovered, as an error that tells its caller nothing of it. Call it where
// recover was called: the log gets that stack.
func Panicked(op string, value any) *Error {
	return New(Unknown, op, "internal error; the server's log has the cause").Because(&panicked{value, debug.Stack()})
}

// IsPanic reports whether err was a panic that Contain, Contained or Panicked made an error of.
func IsPanic(err error) bool {
	_, ok := errors.AsType[*panicked](err)
	return ok
}

// Contain turns a panic into an error of the function that defers it, so that one bad turn
// does not take the others of the process with it:
//
//	defer failure.Contain("turn", &err)
func Contain(op string, err *error) {
	if p := recover(); p != nil {
		*err = Panicked(op, p)
	}
}

// Contained is do for a goroutine beside others of one turn or call: a panic of it, which would
// end the process, ends them with that error.
func Contained(op string, end func(error), do func()) {
	var err error
	defer func() {
		if err != nil {
			end(err)
		}
	}()
	defer Contain(op, &err)
	do()
}
