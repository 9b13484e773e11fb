package failure

import troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"

// The facts of a write to state of another owner (contract SO-7).
const (
	FactKey   = "key"   // that was to be written
	FactOwner = "owner" // of the key, a tier
	FactActor = "actor" // who tried
)

// Owned returns a copy of e that also says whose the state is that was to be written. Its status
// has them as a troupe.v1.StateViolation.
func (e *Error) Owned(key, owner, actor string) *Error {
	return e.With(FactKey, key).With(FactOwner, owner).With(FactActor, actor)
}

// Trespass reports whether an error is that of a write to state of another owner, by somebody
// who is named. Its mode is state_violation, or policy_security where a whole method is refused.
func (e *Error) Trespass() bool {
	return (e.Mode == StateViolation || e.Mode == PolicySecurity) &&
		e.Facts[FactKey] != "" && e.Facts[FactOwner] != "" && e.Facts[FactActor] != ""
}

// violation is the detail of a status that such an error has; nil: none.
func violation(e *Error) *troupev1.StateViolation {
	if !e.Trespass() {
		return nil
	}
	return &troupev1.StateViolation{Key: e.Facts[FactKey], Owner: e.Facts[FactOwner], Actor: e.Facts[FactActor]}
}
