package turn

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// asks says in the request of a step what it is asked to do (contract OC-28).
func (t *turn) asks(work context.Context, req *troupev1.ExecuteStepRequest, step workflow.Step) {
	req.Goal = t.goal()
	req.Task = cmp.Or(step.Task, req.GetGoal())
	req.ExpectedOutput, req.Constraints = step.Expects, step.Constraints
	req.Priority, req.Tags = t.req.Priority, t.req.Tags
	if deadline, ok := work.Deadline(); ok {
		if left := time.Until(deadline); left > 0 { // else the call will not begin
			req.Timeout = durationpb.New(left)
		}
	}
	if p := step.Plan; p != nil {
		req.Plan = &troupev1.PlanRequest{Max: int32(p.Max), Parallel: p.Parallel}
		for _, agent := range p.Agents {
			req.Plan.Agents = append(req.Plan.Agents, &troupev1.PlanAgent{Name: agent, Description: conversation.Brief(t.Workflows.Description(agent), maxDescription)})
		}
	}
}

// maxDescription is how many characters of an agent's description a planner is told.
const maxDescription = 500

// goal is what the user wants, as the first event of the trace quotes it: what was said last, or
// the names of files that came without a word.
func (t *turn) goal() string {
	if text := conversation.Brief(t.req.Text, maxGoal); text != "" {
		return text
	}
	for _, m := range slices.Backward(t.history) {
		if m.Role != conversation.RoleUser || m.Author != "" {
			continue
		}
		names := []string{"files:"}
		for _, a := range m.Attachments {
			names = append(names, a.Name)
		}
		return cmp.Or(conversation.Brief(m.Text, maxGoal), conversation.Brief(strings.Join(names, " "), maxGoal))
	}
	return "go on with the conversation" // the user's message is not in the window any more
}
