// Package violation is what a check found to be wrong: the common word of models and
// validators.
package violation

import "fmt"

// Violation is a promise that was not kept.
type Violation struct {
	Check  string // that found it
	Detail string // where, and what
}

// Newf returns a violation with a formatted detail.
func Newf(check, format string, args ...any) Violation {
	return Violation{check, fmt.Sprintf(format, args...)}
}

// String is one line for a person.
func (v Violation) String() string { return v.Check + ": " + v.Detail }
