package tool

// Guard decides what happens to tool calls once a turn has read untrusted text (guarantee S14). Text is untrusted if neither
// the user nor the agent's author wrote it, because it may try to make the model do harm. Only tools for which
// Scope.Guarded is true are affected.
type Guard string

// The guards.
const (
	// GuardAsk is the default. An affected call waits for an approval, as execution.NeedApproval. If no person can
	// be asked, the call fails with policy_security.
	GuardAsk Guard = "ask"
	// GuardStrict rejects affected calls, unless a handler got a person's approval. A tool that declares no scope
	// counts as untrusted, with egress.
	GuardStrict Guard = "strict"
	// GuardOff guards nothing.
	GuardOff Guard = "off"
)

// strengthOrder ranks the guards from weakest to strictest. An empty guard is the weakest, because it adds no rule
// of its own.
var strengthOrder = map[Guard]int{"": 0, GuardOff: 1, GuardAsk: 2, GuardStrict: 3}

// IsKnown reports whether g is empty or one of the defined guards.
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
