package trace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/spending"
	"github.com/troupe-dev/troupe/internal/tracelog"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

type explainCommand struct {
	remote.Query `embed:""`
	ID           string `arg:"" name:"trace" help:"Id of the trace; troupe get traces lists them." type:"trace"`
}

// Help implements kong.HelpProvider.
func (explainCommand) Help() string {
	return "Prints the decisions of a trace in order: which agent, which instance and which tools were chosen, why, and which candidates " +
		"were not; and what led to the next decision: lost attempts and failed steps. " +
		"With --json it prints the events of these decisions, where troupe describe trace prints all events."
}

// Run prints the stored decisions of the trace.
func (ec *explainCommand) Run(ctx context.Context, term console.Terminal) error {
	c, conn, err := ec.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, remote.Timeout)
	defer cancel()
	trace, events, err := loadTrace(ctx, c, ec.ID)
	if err != nil {
		return ec.ExplainError(err)
	}
	if ec.JSON {
		return printTraceJSON(term, trace, slices.DeleteFunc(events, func(e *troupev1.Event) bool { return explainEvent(e) == nil }))
	}
	fmt.Fprintf(term.Out, "trace  %s\nasked  %s\nstate  %s\n", console.EscapeLine(trace.GetTraceId()),
		console.OrDash(console.EscapeBeginning(trace.GetText(), 80)), render.TraceState(trace))
	if used := formatBudgetUse(events); used != "" {
		fmt.Fprintf(term.Out, "budget %s\n", used)
	}
	fmt.Fprintln(term.Out)
	w := tabwriter.NewWriter(term.Out, 0, 0, 2, ' ', 0)
	for _, e := range events {
		for i, line := range explainEvent(e) {
			if kind, about, headed := strings.Cut(line, "\t"); i == 0 && headed {
				console.PrintRow(w, kind, about)
			} else {
				console.PrintRow(w, "", "  "+line)
			}
		}
	}
	return w.Flush()
}

// explainEvent returns a heading and lines about a decision, a failure, a plan or a warning (nil for other
// events).
func explainEvent(e *troupev1.Event) []string {
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_RoutingDecision:
		var rejected []*troupev1.RejectedInstance
		for _, out := range p.RoutingDecision.GetRejected() {
			rejected = append(rejected, &troupev1.RejectedInstance{InstanceId: out.GetId(), Why: out.GetWhy()})
		}
		if p.RoutingDecision.GetType() == troupev1.DecisionType_DECISION_TYPE_TOOL_SELECTION {
			return decisionLines("tools", tracelog.DecisionFromEvent(e), rejected, stepSuffix(e))
		}
		return decisionLines("agent", tracelog.DecisionFromEvent(e), rejected)
	case *troupev1.Event_StepStarted:
		d := tracelog.DecisionFromEvent(e)
		if d == nil {
			return []string{fmt.Sprintf("instance\t%s%s", e.GetInstanceId(), stepSuffix(e))}
		}
		return decisionLines("instance", d, p.StepStarted.GetChoice().GetRejected(), stepSuffix(e))
	case *troupev1.Event_TextRetracted:
		f := p.TextRetracted.GetFailure()
		return []string{
			fmt.Sprintf("lost\t%s%s", console.OrDash(e.GetInstanceId()), stepSuffix(e)),
			fmt.Sprintf("%s: %s", grpcfailure.FromProto(f).Mode, console.EscapeLine(f.GetMessage())),
		}
	case *troupev1.Event_StepFinished:
		if f := p.StepFinished.GetResult().GetFailure(); f != nil {
			return []string{
				fmt.Sprintf("failed\t%s%s", e.GetAgent(), stepSuffix(e)),
				fmt.Sprintf("%s: %s", grpcfailure.FromProto(f).Mode, console.EscapeLine(f.GetMessage())),
			}
		}
		if made := render.PlannedTasks(p.StepFinished.GetResult()); len(made) > 0 {
			return append([]string{fmt.Sprintf("planned\t%s%s", e.GetAgent(), stepSuffix(e))}, made...)
		}
	case *troupev1.Event_Warning:
		if p.Warning.GetReason() == "WAITING" || p.Warning.GetReason() == "TAKEN_OVER" || p.Warning.GetReason() == spending.ReasonNearLimit {
			return []string{fmt.Sprintf("%s\t%s", strings.ToLower(p.Warning.GetReason()), console.EscapeLine(p.Warning.GetMessage()))}
		}
	}
	return nil
}

// decisionLines describes a decision: the choice, its confidence and reason, and the candidates that were not
// chosen.
func decisionLines(kind string, d *troupev1.Decision, rejected []*troupev1.RejectedInstance, where ...string) []string {
	about := strings.ToLower(d.GetMetadata()["strategy"])
	if d.GetType() == troupev1.DecisionType_DECISION_TYPE_FALLBACK {
		about += ", a fallback"
	}
	lines := []string{
		fmt.Sprintf("%s\t%s%s: %s, confidence %.2f", kind, d.GetTarget(), strings.Join(where, ""), about, d.GetConfidence()),
		"because " + console.EscapeLine(d.GetReason()),
	}
	if next := d.GetMetadata()["fallback"]; next != "" {
		lines = append(lines, "next would be "+next)
	}
	if others := d.GetAlternatives(); len(others) > 0 && kind == "tools" {
		lines = append(lines, "and "+strings.Join(others, ", "))
	} else if len(others) > 0 {
		lines = append(lines, "could have been "+strings.Join(others, ", "))
	}
	for _, r := range rejected {
		line := fmt.Sprintf("not %s: %s", r.GetInstanceId(), r.GetWhy())
		if r.GetDetail() != "" {
			line += " (" + console.EscapeLine(r.GetDetail()) + ")"
		}
		lines = append(lines, line)
	}
	return lines
}

func stepSuffix(e *troupev1.Event) string {
	return fmt.Sprintf(", step %d, attempt %d", e.GetStep(), e.GetAttempt())
}
