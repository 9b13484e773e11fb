package wire

import (
	"fmt"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// ReasonBudget is that of the warning that most of a kind of the budget of a trace is used.
const ReasonBudget = "BUDGET"

// reasonExceeded is that of package loop: more is used than the budget allows.
const reasonExceeded = "BUDGET_EXCEEDED"

// warnAt is the part of a budget at which it is warned (OC-30).
const warnAt = 0.8

// warningOf is how such a warning begins, but for that of time, which is no field of the limits.
// Behind it comes the kind, and a colon: so a successor finds of which it was told.
const warningOf = "limits."

// timeKind is the kind of the warning of time: the field of a workflow.
const timeKind = "timeout"

// kindOf is the kind of such a warning.
func kindOf(w *troupev1.Warning) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(w.GetMessage(), warningOf), ":")
	return kind
}

// isOwn reports whether a warning is one of Due: those of a step may be those of a remote turn.
func isOwn(e *troupev1.Event, w *troupev1.Warning) bool {
	return w.GetReason() == ReasonBudget && e.GetStep() == 0
}

// Due are the warnings that are to be told now: of each kind of which 80 % are used, once in the
// life of the trace. They count as told.
func (s *Spending) Due() []*troupev1.Warning {
	used, steps := s.Used(), int64(s.Steps())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.budget == nil || s.total != nil {
		return nil
	}
	var due []*troupev1.Warning
	tell := func(kind string, used, limit string) {
		if s.warn(kind) {
			due = append(due, &troupev1.Warning{Reason: ReasonBudget, Message: fmt.Sprintf("%s%s: %s of %s are used", warningOf, kind, used, limit)})
		}
	}
	if limit := s.budget.GetSteps(); limit > 0 && float64(steps) >= warnAt*float64(limit) {
		tell("steps", fmt.Sprint(steps), fmt.Sprint(limit))
	}
	limits := LimitsFromProto(s.budget.GetLimits())
	for _, k := range limits.Reached(used, warnAt) {
		tell(string(k), k.Text(used.Of(k)), k.Text(limits.Of(k)))
	}
	return due
}

// TimeToWarn is how much of a timeout is left when its warning is due.
func TimeToWarn(timeout time.Duration) time.Duration {
	return timeout - time.Duration(warnAt*float64(timeout))
}

// Late is the warning that most of the time of the turn is gone; nil when it was told before in the
// life of the trace. It counts as told.
func (s *Spending) Late(gone, timeout time.Duration) *troupev1.Warning {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.warn(timeKind) {
		return nil
	}
	return &troupev1.Warning{Reason: ReasonBudget, Message: fmt.Sprintf("%s: %s of %s are gone", timeKind, gone.Round(time.Second/10), timeout)}
}

// warn notes that a kind was warned of, and is false when it was before. The lock is held.
func (s *Spending) warn(kind string) bool {
	if s.warned[kind] {
		return false
	}
	if s.warned == nil {
		s.warned = map[string]bool{}
	}
	s.warned[kind] = true
	return true
}

// UseText is what was used, in words: "tokens 812 of 100000, toolCalls 2 of 50". What was not used
// is left out; empty when nothing was.
func UseText(used *troupev1.BudgetUse, limits *troupev1.Budget) string {
	amounts, most := UsedFromProto(used), LimitsFromProto(limits)
	var words []string
	for _, k := range budget.Kinds() {
		amount := amounts.Of(k)
		if amount == 0 {
			continue
		}
		text := string(k) + " " + k.Text(amount)
		if limit := most.Of(k); limit != budget.Unlimited {
			text += " of " + k.Text(limit)
		}
		words = append(words, text)
	}
	return strings.Join(words, ", ")
}
