package inspect

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// stepInstructions returns the task of a workflow step, its constraints, and the steps that it may plan.
func stepInstructions(s *troupev1.WorkflowStep) (lines []string) {
	for _, f := range []struct{ name, text string }{
		{"task", s.GetTask()}, {"expects", s.GetExpects()}, {"constraints", strings.Join(s.GetConstraints(), "; ")},
	} {
		if f.text != "" {
			lines = append(lines, f.name+": "+console.EscapeBeginning(f.text, terminalWidth))
		}
	}
	p := s.GetPlan()
	if p == nil {
		return lines
	}
	how := "one after the other"
	if p.GetParallel() {
		how = "at once"
	}
	if p.GetContinues() {
		how += ", continues when one fails"
	}
	return append(lines, fmt.Sprintf("plans at most %s for %s, %s", console.FormatCount(int64(p.GetMax()), "task"), strings.Join(p.GetAgents(), ", "), how))
}

type getWorkflowsCommand struct {
	remote.Query `embed:""`
}

// Run prints the workflows.
func (g *getWorkflowsCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.ListWorkflowsResponse
	return g.Show(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.ListWorkflows(ctx, &troupev1.ListWorkflowsRequest{})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "NAME\tENTRY\tAGENTS\tDESCRIPTION")
		for _, f := range resp.GetWorkflows() {
			name := f.GetName()
			if f.GetIsDefault() {
				name += " (default)"
			}
			console.PrintRow(w, name, f.GetEntry(), strings.Join(f.GetAgents(), ","), console.OrDash(f.GetDescription()))
		}
	})
}

type describeWorkflowCommand struct {
	remote.Query `embed:""`
	Name         string `arg:"" optional:"" help:"Name of the workflow (empty means the default workflow)."`
}

// Run prints the graph.
func (d *describeWorkflowCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.GetWorkflowResponse
	return d.Show(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.GetWorkflow(ctx, &troupev1.GetWorkflowRequest{Name: d.Name})
		return resp, err
	}, func(w *tabwriter.Writer) { printWorkflow(w, resp.GetWorkflow()) })
}

// terminalWidth is the maximum width of a drawn workflow, in characters.
const terminalWidth = 80

// printWorkflow prints each step with its edges, in the order in which the orchestrator tries them. The steps of a
// branch are indented below their fork.
func printWorkflow(w io.Writer, f *troupev1.Workflow) {
	line := func(format string, args ...any) {
		text := []rune(strings.TrimRight(console.EscapeLine(fmt.Sprintf(format, args...)), " "))
		if len(text) > terminalWidth {
			text = append(text[:terminalWidth-1], '…')
		}
		fmt.Fprintln(w, string(text))
	}
	line("workflow %s: begins with %s, at most %d steps", f.GetName(), f.GetEntry(), f.GetMaxSteps())
	if f.GetDescription() != "" {
		line("%s", f.GetDescription())
	}
	for _, bound := range turnLimitLines(f) {
		line("%s", bound)
	}
	forks := map[string]string{}
	for _, s := range f.GetSteps() {
		forks[s.GetName()] = s.GetFork()
	}
	for _, s := range f.GetSteps() {
		depth := 0
		for fork := s.GetFork(); fork != "" && depth < len(forks); fork = forks[fork] {
			depth++
		}
		in := strings.Repeat("  ", depth)
		fmt.Fprintln(w)
		line("%s%s%s", in, s.GetName(), stepNoteLines(s))
		for _, asked := range stepInstructions(s) {
			line("%s│  %s", in, asked)
		}
		for i, e := range s.GetEdges() {
			corner := "├─"
			if i == len(s.GetEdges())-1 {
				corner = "└─"
			}
			kind := strings.ToLower(strings.TrimPrefix(e.GetKind().String(), "WORKFLOW_EDGE_KIND_"))
			line("%s%s %-9s → %s  %s", in, corner, kind, e.GetStep(), e.GetCondition())
		}
	}
}

// turnLimitLines returns lines about the limits of a turn: its timeout, the history that its agents see, and its
// budget.
func turnLimitLines(f *troupev1.Workflow) []string {
	timeout := "the default of the orchestrator"
	if f.GetTimeout() != nil {
		timeout = f.GetTimeout().AsDuration().String()
	}
	lines := []string{"timeout  " + timeout, fmt.Sprintf("history  the last %d messages", f.GetHistoryWindow())}
	if f.GetLimits() == nil {
		return lines // the orchestrator is too old to report them
	}
	title := "limits"
	limits := append([]string{fmt.Sprintf("steps %d", f.GetMaxSteps())}, render.BudgetLimits(f.GetLimits())...)
	for part := range slices.Chunk(limits, 4) { // as many as fit in a line
		lines, title = append(lines, fmt.Sprintf("%-8s %s", title, strings.Join(part, ", "))), ""
	}
	policy := strings.ToLower(strings.TrimPrefix(f.GetLimits().GetPolicy().String(), "BUDGET_POLICY_"))
	return append(lines, "policy   "+policy)
}

// stepNoteLines returns lines with everything about a step except its name and its edges.
func stepNoteLines(s *troupev1.WorkflowStep) string {
	var notes []string
	if s.GetAgent() != "" {
		notes = append(notes, "agent "+s.GetAgent())
	}
	if s.GetInstances() != "" {
		notes = append(notes, "instances by "+s.GetInstances())
	}
	if s.GetChoose() != nil {
		notes = append(notes, "chooses by "+policyText(s.GetChoose()))
	}
	if s.GetTools() != nil {
		notes = append(notes, "tools by "+policyText(s.GetTools()))
	}
	if s.GetFork() != "" {
		notes = append(notes, "in a branch of "+s.GetFork())
	}
	if s.GetLimit() > 0 {
		notes = append(notes, fmt.Sprintf("at most %d times", s.GetLimit()))
	}
	if s.GetRetries() > 0 {
		notes = append(notes, fmt.Sprintf("%d retries", s.GetRetries()))
	}
	if s.GetContinues() {
		notes = append(notes, "continues when it fails")
	}
	if s.GetEnd() {
		notes = append(notes, "end")
	}
	if len(notes) == 0 {
		return ""
	}
	return ": " + strings.Join(notes, ", ")
}

// policyText describes how a step chooses its agent or its tools.
func policyText(p *troupev1.ChoicePolicy) string {
	text := strings.ToLower(strings.TrimPrefix(p.GetStrategy().String(), "ROUTING_STRATEGY_"))
	var parts []string
	if needs := p.GetNeeds(); len(needs) > 0 {
		parts = append(parts, "needs "+strings.Join(needs, " "))
	}
	parts = append(parts, p.GetNames()...)
	for _, name := range slices.Sorted(maps.Keys(p.GetPriorities())) {
		parts = append(parts, fmt.Sprintf("%s %d", name, p.GetPriorities()[name]))
	}
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, "; ") + ")"
	}
	return text
}
