// Package violation defines the finding that all checks of the chaos suite return.
package violation

import "fmt"

// Violation is a promise of the mesh that a check found broken.
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
