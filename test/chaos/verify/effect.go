package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/test/chaos/ledger"
	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// The names of the checks of tool calls.
const (
	EffectAtMostOnce  = "effect at most once"
	EffectKeepsKey    = "effect one key"
	EffectNotRepeated = "effect not again"
	EffectInLedger    = "effect in the ledger"
	EffectUnrequested = "effect unasked"
)

// AttemptsByInstance maps a mark, a step and an instance to the attempt that ran there.
type AttemptsByInstance map[string]int32

// AttemptsFromStreams returns the attempts that the streams show. It omits an instance that ran two attempts of
// one step.
func AttemptsFromStreams(streams []Stream) AttemptsByInstance {
	all := AttemptsByInstance{}
	for _, s := range streams {
		for _, e := range s.Events {
			if e.GetStepStarted() == nil {
				continue
			}
			at := attemptKey(s.Mark, int(e.GetStep()), e.GetInstanceId())
			if known, ok := all[at]; ok && known != e.GetAttempt() {
				all[at] = ambiguousAttempt
				continue
			}
			all[at] = e.GetAttempt()
		}
	}
	return all
}

const ambiguousAttempt = -1

func attemptKey(mark string, step int, instance string) string {
	return fmt.Sprintf("%s %d %s", mark, step, instance)
}

// CommittedStep is the text that a step committed.
type CommittedStep struct {
	Mark string
	Step int
	Text string
}

// CheckEffects compares the ledger with the events of the mesh. asked holds the marks that may occur in the
// ledger.
func CheckEffects(calls []ledger.Call, attempts AttemptsByInstance, committed []CommittedStep, asked map[string]bool) (found []violation.Violation) {
	steps := map[string][]ledger.Call{}
	receipts := map[string]string{} // where each receipt was issued
	for i, c := range calls {
		at := stepName(c.Mark, c.Step)
		steps[at] = append(steps[at], c)
		receipts[fmt.Sprintf("%s#%d", c.Kind, i+1)] = at
		if !asked[c.Mark] {
			found = append(found, violation.Newf(EffectUnrequested, "%s: a %s call for a request that was never made, or was rejected", at, c.Kind))
		}
	}
	for at, calls := range steps {
		found = append(found, checkRanOnce(at, calls)...)
		found = append(found, checkSameKey(at, calls)...)
		found = append(found, checkNotRepeated(at, calls, attempts)...)
	}
	for _, c := range committed {
		found = append(found, c.checkInLedger(receipts)...)
	}
	return found
}

func stepName(mark string, step int) string { return fmt.Sprintf("%s step %d", mark, step) }

// checkRanOnce checks that a tool that may run only once did not run again.
func checkRanOnce(at string, calls []ledger.Call) []violation.Violation {
	var ran []string
	for _, c := range calls {
		if c.Kind == ledger.AtMostOnce {
			ran = append(ran, "on "+c.Worker)
		}
	}
	if len(ran) > 1 {
		return []violation.Violation{violation.Newf(EffectAtMostOnce, "%s: ran %d times: %s", at, len(ran), strings.Join(ran, ", "))}
	}
	return nil
}

// checkSameKey checks that all calls of a tool in a step have the same idempotency key.
func checkSameKey(at string, calls []ledger.Call) (found []violation.Violation) {
	keys := map[ledger.Kind]string{}
	for _, c := range calls {
		if c.Kind == ledger.Model {
			continue
		}
		known, ok := keys[c.Kind]
		if c.Key == "" || ok && known != c.Key {
			found = append(found, violation.Newf(EffectKeepsKey, "%s: %s was called with the keys %q and %q", at, c.Kind, known, c.Key))
		}
		keys[c.Kind] = c.Key
	}
	return found
}

// callPosition returns the position of a call in the order of its step.
func callPosition(c ledger.Call) int {
	if c.Kind == ledger.Model {
		return 2*c.Number - 1
	}
	return 2*slices.Index(ledger.Tools, c.Kind) + 2
}

// checkNotRepeated checks that no later attempt repeats a journaled call. The journal is written before a tool
// with an effect runs, so every earlier call of the step is journaled by then.
func checkNotRepeated(at string, calls []ledger.Call, attempts AttemptsByInstance) []violation.Violation {
	for _, first := range calls {
		if first.Kind != ledger.Idempotent && first.Kind != ledger.AtMostOnce {
			continue
		}
		early := attempts[attemptKey(first.Mark, first.Step, first.Worker)]
		for _, again := range calls {
			late := attempts[attemptKey(again.Mark, again.Step, again.Worker)]
			if early > 0 && late > early && callPosition(again) < callPosition(first) {
				return []violation.Violation{violation.Newf(EffectNotRepeated,
					"%s: attempt %d made call %d (%s) again, which was in the journal when attempt %d called %s",
					at, late, callPosition(again), again.Kind, early, first.Kind)}
			}
		}
	}
	return nil
}

// inDoubtPrefix is the text with which the result of a tool in doubt begins.
const inDoubtPrefix = "UNKNOWN_OUTCOME"

// checkInLedger checks that every tool result in a step is in the ledger.
func (c CommittedStep) checkInLedger(receipts map[string]string) []violation.Violation {
	at := stepName(c.Mark, c.Step)
	results, ok := strings.CutPrefix(c.Text, at+": ")
	parts := strings.Split(results, " | ")
	if !ok || len(parts) != len(ledger.Tools) {
		return []violation.Violation{violation.Newf(EffectInLedger, "%s: committed %q", at, c.Text)}
	}
	for i, kind := range ledger.Tools {
		switch {
		case kind == ledger.AtMostOnce && strings.HasPrefix(parts[i], inDoubtPrefix):
		case !strings.HasPrefix(parts[i], string(kind)+"#") || receipts[parts[i]] != at:
			return []violation.Violation{violation.Newf(EffectInLedger, "%s: says that %s gave %q, which the ledger knows of %q", at, kind, parts[i],
				receipts[parts[i]])}
		}
	}
	return nil
}
