package pendingcall

import (
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// needDescriptions describes for a person what waiting calls need, in the order of the summary.
var needDescriptions = []struct {
	need execution.Need
	text string
}{
	{execution.NeedApproval, "an approval"},
	{execution.NeedResult, "a result of the client"},
	{execution.NeedAuth, "a credential"},
}

// Summary describes waiting calls for a person in one sentence.
func Summary(calls []execution.Pending) string {
	var parts []string
	for _, n := range needDescriptions {
		var names []string
		for _, p := range calls {
			if p.Needs == n.need && !slices.Contains(names, p.Tool) {
				names = append(names, p.Tool)
			}
		}
		switch last := len(names) - 1; last {
		case -1:
		case 0:
			parts = append(parts, names[0]+" waits for "+n.text)
		default:
			parts = append(parts, strings.Join(names[:last], ", ")+" and "+names[last]+" wait for "+n.text)
		}
	}
	return strings.Join(parts, ", and ") + "."
}

// CheckTotal rejects steps of a turn that leave too many calls waiting together. Modes: resource_quota.
func CheckTotal(waiting []execution.Result) error {
	calls := 0
	for _, r := range waiting {
		calls += len(r.Pending)
	}
	if calls > execution.MaxPending {
		return NewTooManyError(calls)
	}
	return nil
}

// NewTooManyError returns the error for a turn that leaves more calls waiting than one turn may.
func NewTooManyError(calls int) error {
	return failure.Newf(failure.ResourceQuota, "loop.Run",
		"%d tool calls would wait at once, and a turn may leave %d; let fewer agents work in parallel, or guard fewer tools",
		calls, execution.MaxPending)
}
