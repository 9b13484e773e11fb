package trace

import (
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/response"
	"github.com/troupe-dev/troupe/internal/wire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// stepStatusText says how a step ended. For a failure it names the mode and says whether a retry may succeed.
func stepStatusText(r *troupev1.StepResult) string {
	resp := response.FromResult(wire.ResultFromProto(r))
	text := string(resp.Status)
	if resp.Status != response.Failed {
		return text
	}
	text += ": " + string(resp.Error.Type)
	if resp.Error.Recoverable {
		text += ", recoverable"
	}
	return text
}

// planNodes returns the steps of a plan with their progress.
func planNodes(plan []*troupev1.PlanStep) (lines []*node) {
	for _, s := range plan {
		n := &node{text: fmt.Sprintf("%s, agent %s: %s", s.GetStep(), s.GetAgent(), strings.ToLower(strings.TrimPrefix(s.GetState().String(), "PLAN_STATE_")))}
		if s.GetTask() != "" {
			n.text += "; " + console.EscapeBeginning(s.GetTask(), 80)
		}
		if s.GetExecuting() != nil && s.GetEnded() != nil {
			n.duration = s.GetEnded().AsTime().Sub(s.GetExecuting().AsTime())
		}
		lines = append(lines, n)
	}
	return lines
}
