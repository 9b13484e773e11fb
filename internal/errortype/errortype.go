// Package errortype names the type of an error for traces.
package errortype

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Of returns the type of an error: its failure mode, otherwise the name that the error gives itself with a method
// ErrorType() string, and otherwise the name of its Go type, without wrappers of package fmt and errors (CO-71). It is
// empty only for nil.
func Of(err error) string {
	if err == nil {
		return ""
	}
	if mode := failure.ModeOf(err); mode != failure.Unknown {
		return string(mode)
	}
	var named interface{ ErrorType() string }
	if errors.As(err, &named) && named.ErrorType() != "" {
		return named.ErrorType()
	}
	for {
		inner := unwrap(err)
		if !isWrapper(err) || inner == nil {
			return fmt.Sprintf("%T", err)
		}
		err = inner
	}
}

// unwrap returns the error that err wraps, the first of several (nil if there is none).
func unwrap(err error) error {
	if e, ok := err.(interface{ Unwrap() []error }); ok {
		return e.Unwrap()[0]
	}
	return errors.Unwrap(err)
}

// isWrapper reports whether the error only adds to another one.
func isWrapper(err error) bool {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath() == "fmt" || t.PkgPath() == "errors" || t == reflect.TypeFor[failure.Error]()
}
