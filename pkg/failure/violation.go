package failure

// The names of the facts that describe a rejected write to state of another owner (contract SO-7).
const (
	FactKey   = "key"   // the key of the state
	FactOwner = "owner" // the tier that owns the key
	FactActor = "actor" // who attempted the write
)

// WithOwner returns a copy of e with the facts of an ownership violation. In a gRPC status these facts become a
// troupe.v1.StateViolation.
func (e *Error) WithOwner(key, owner, actor string) *Error {
	return e.With(FactKey, key).With(FactOwner, owner).With(FactActor, actor)
}

// IsViolation reports whether e is an ownership violation with key, owner and actor. Its mode is state_violation,
// or policy_security if the caller may not call the method at all.
func (e *Error) IsViolation() bool {
	return (e.Mode == StateViolation || e.Mode == PolicySecurity) &&
		e.Facts[FactKey] != "" && e.Facts[FactOwner] != "" && e.Facts[FactActor] != ""
}
