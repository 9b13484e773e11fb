package failure

import "errors"

// fatalError marks the error whose cause it is as fatal. cause is the cause proper (nil if there is none).
type fatalError struct{ cause error }

func (f *fatalError) Error() string {
	if f.cause == nil {
		return "fatal"
	}
	return f.cause.Error()
}

func (f *fatalError) Unwrap() error { return f.cause }

// Fatal returns a copy of e that ends more than the step of an agent: the instance that reports it finishes its other
// steps and shuts down (LC-39). It is for a process that is broken, such as one that has lost a device. A tool's error
// with this mark ends the turn instead of being shown to the model.
func (e *Error) Fatal() *Error {
	return e.Because(&fatalError{e.Cause})
}

// IsFatal reports whether e or an Error among its causes was marked with Fatal.
func (e *Error) IsFatal() bool {
	_, fatal := errors.AsType[*fatalError](e.Cause)
	return fatal
}
