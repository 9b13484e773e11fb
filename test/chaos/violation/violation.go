// Package violation has the type of a finding that models and validators share.
package violation

import "fmt"

// Violation is a broken promise.
type Violation struct {
	Check  string // the check that found it
	Detail string // where, and what
}

// Newf returns a violation with a formatted detail.
func Newf(check, format string, args ...any) Violation {
	return Violation{check, fmt.Sprintf(format, args...)}
}

// String returns one line for a person.
func (v Violation) String() string { return v.Check + ": " + v.Detail }
