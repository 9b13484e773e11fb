package tool

// Guard says what happens to tool calls once a turn has read untrusted text, which neither its user nor the author
// of its agent wrote (S14). Such text may try to make the model do harm. It applies to the tools for which
// Scope.Guarded is true.
type Guard string

// The guards.
const (
	// GuardAsk is the default: such a call waits for an approval, as execution.NeedApproval. Where no one can be asked it
	// does not run, with policy_security.
	GuardAsk Guard = "ask"
	// GuardStrict does not ask: such a call does not run, unless a person allowed it through a handler. A tool that
	// declares no scope counts as untrusted, with egress.
	GuardStrict Guard = "strict"
	// GuardOff guards nothing.
	GuardOff Guard = "off"
)

// strengthOrder orders the guards from weakest to strictest. The empty guard leaves the choice to others.
var strengthOrder = map[Guard]int{"": 0, GuardOff: 1, GuardAsk: 2, GuardStrict: 3}

// IsKnown reports whether g is one of the guards, or empty.
func (g Guard) IsKnown() bool {
	_, known := strengthOrder[g]
	return known
}

// Stricter returns the stricter of two guards.
func (g Guard) Stricter(other Guard) Guard {
	if strengthOrder[other] > strengthOrder[g] {
		return other
	}
	return g
}
