package pendingcall

import (
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// needs describes for a person what calls wait for.
var needs = []struct {
	need execution.Need
	text string
}{
	{execution.NeedApproval, "an approval"},
	{execution.NeedResult, "a result of the client"},
	{execution.NeedAuth, "a credential"},
}

// Summary returns one sentence for a person about calls that wait.
func Summary(calls []execution.Pending) string {
	var parts []string
	for _, n := range needs {
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

// TooManyError returns the error of a turn in which more calls wait than one turn may leave.
func TooManyError(calls int) error {
	return failure.Newf(failure.ResourceQuota, "loop.Run",
		"%d tool calls would wait at once, and a turn may leave %d; let fewer agents work in parallel, or guard fewer tools",
		calls, execution.MaxPending)
}
