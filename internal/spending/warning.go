package spending

import (
	"fmt"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// These are the reasons of warnings about a budget.
const (
	// ReasonNearLimit is the reason of the orchestrator's warning that 80 % of a limit is used.
	ReasonNearLimit = "BUDGET"
	// ReasonExceeded is the reason of a worker's warning that usage exceeds a limit. Package loop emits it.
	ReasonExceeded = "BUDGET_EXCEEDED"
)

// warnThreshold is the fraction of a limit at which a warning is published (OC-30).
const warnThreshold = 0.8

// kindPrefix is the beginning of a warning's message. The kind of limit and a colon follow it. So an orchestrator
// that takes the trace over can tell which warnings were published. The warning about time has no prefix.
const kindPrefix = "limits."

// timeKind is the kind of limit in the warning about time.
const timeKind = "timeout"

// WarningKind returns the kind of limit that a warning is about, which it reads from the message.
func WarningKind(w *troupev1.Warning) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(w.GetMessage(), kindPrefix), ":")
	return kind
}

// IsBudgetWarning reports whether an event is a warning of the orchestrator about the budget of its own trace. A
// warning inside a step may belong to a remote turn, so it does not count.
func IsBudgetWarning(e *troupev1.Event) bool {
	return e.GetWarning().GetReason() == ReasonNearLimit && e.GetStep() == 0
}

// DueWarnings returns the warnings to publish now: one for each kind of limit of which 80 % is used. It returns
// each warning only once per trace.
func (t *Tally) DueWarnings() []*troupev1.Warning {
	used, steps := t.Used(), int64(t.FinishedSteps())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.budget == nil || t.finalUsed != nil {
		return nil
	}
	var due []*troupev1.Warning
	add := func(kind string, used, limit string) {
		if t.markWarned(kind) {
			due = append(due, &troupev1.Warning{Reason: ReasonNearLimit, Message: fmt.Sprintf("%s%s: %s of %s are used", kindPrefix, kind, used, limit)})
		}
	}
	if limit := t.budget.GetSteps(); limit > 0 && float64(steps) >= warnThreshold*float64(limit) {
		add("steps", fmt.Sprint(steps), fmt.Sprint(limit))
	}
	limits := wire.LimitsFromProto(t.budget.GetLimits())
	for _, k := range limits.ReachedKinds(used, warnThreshold) {
		add(string(k), k.FormatAmount(used.Get(k)), k.FormatAmount(limits.Get(k)))
	}
	return due
}

// TimeLeftAtWarning returns how much of a timeout is left at the moment when its warning is due.
func TimeLeftAtWarning(timeout time.Duration) time.Duration {
	return timeout - time.Duration(warnThreshold*float64(timeout))
}

// TimeWarning returns the warning that 80 % of the turn's time has passed (nil if it was returned or published
// before).
func (t *Tally) TimeWarning(elapsed, timeout time.Duration) *troupev1.Warning {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.markWarned(timeKind) {
		return nil
	}
	return &troupev1.Warning{Reason: ReasonNearLimit, Message: fmt.Sprintf("%s: %s of %s have passed", timeKind, elapsed.Round(time.Second/10), timeout)}
}

// markWarned records that the warning about a kind is published. It returns false if it was published before. The
// caller holds the lock.
func (t *Tally) markWarned(kind string) bool {
	if t.warnedKinds[kind] {
		return false
	}
	if t.warnedKinds == nil {
		t.warnedKinds = map[string]bool{}
	}
	t.warnedKinds[kind] = true
	return true
}

// DescribeUsed returns the used amounts as text, such as "tokens 812 of 5000000, toolCalls 2 of 500". It omits kinds
// of which nothing is used.
func DescribeUsed(used *troupev1.BudgetUse, limits *troupev1.Budget) string {
	amounts, bounds := wire.UsedFromProto(used), wire.LimitsFromProto(limits)
	var words []string
	for _, k := range budget.Kinds() {
		amount := amounts.Get(k)
		if amount == 0 {
			continue
		}
		text := string(k) + " " + k.FormatAmount(amount)
		if limit := bounds.Get(k); limit != budget.Unlimited {
			text += " of " + k.FormatAmount(limit)
		}
		words = append(words, text)
	}
	return strings.Join(words, ", ")
}
