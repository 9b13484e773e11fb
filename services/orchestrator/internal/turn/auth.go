package turn

import (
	"cmp"

	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// policy is how the instance for a step is chosen. When an answer to its calls brings a
// credential, that is sealed to a key in the RAM of one instance (LP-37): it gets the step, if it
// can take it, and any other one would have to ask again. A step whose instance is named stays
// with that.
func (t *turn) policy(number int, policy selection.Policy) selection.Policy {
	if number != t.answered || policy.Strategy == selection.Manual {
		return policy
	}
	for _, a := range t.turn.Answers {
		if keeper := broker.Instance(a.AuthID); a.Sealed != "" && keeper != "" {
			policy.Fallback = cmp.Or(policy.Strategy, selection.RoundRobin)
			policy.Strategy, policy.Instance, policy.By = selection.Manual, keeper, "the credential of an answer"
			return policy
		}
	}
	return policy
}
