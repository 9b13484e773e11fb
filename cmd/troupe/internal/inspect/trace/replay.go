package trace

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

type replayCommand struct {
	remote.Query `embed:""`
	ID           string `arg:"" name:"trace" help:"Id of a trace that has ended; troupe get traces lists them." type:"trace"`
	Step         int32  `help:"Only this step, from 1 to 50 (0 means all steps, and the routing between them)." placeholder:"N" type:"step"`
	Instance     string `help:"Instance that should run the steps of its agent (empty means any)." placeholder:"ID"`
}

// Help implements kong.HelpProvider.
func (replayCommand) Help() string {
	return "The agents run as they are now; models and tools answer as they were recorded. Nothing is called, and nothing is stored. " +
		"The memory service must keep recordings (--keep-journals), as troupe dev does. Exit code 0: the same. 1: not."
}

// replayTimeout bounds a replay. A replay calls no model and no tool, but it may wait until an instance is free.
const replayTimeout = 2 * time.Minute

// Run replays the trace and prints the result.
func (r *replayCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.ReplayTraceResponse
	err := r.ShowWithTimeout(ctx, replayTimeout, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.ReplayTrace(ctx, &troupev1.ReplayTraceRequest{TraceId: r.ID, Step: r.Step, InstanceId: r.Instance})
		return resp, err
	}, func(w *tabwriter.Writer) { printReplay(w, resp) })
	if err == nil && hasDifference(resp) {
		return console.ExitCode(process.ExitError)
	}
	return err
}

func hasDifference(resp *troupev1.ReplayTraceResponse) bool {
	different := resp.GetRouting() != nil
	for _, s := range resp.GetSteps() {
		different = different || s.GetDifference() != nil
	}
	return different
}

// printReplay prints the result of a replay.
func printReplay(w *tabwriter.Writer, resp *troupev1.ReplayTraceResponse) {
	var steps, models, tools int64
	for _, s := range resp.GetSteps() {
		where := fmt.Sprintf("step %d, %s", s.GetStep(), console.EscapeLine(s.GetAgent()))
		if s.GetSkipped() != "" {
			fmt.Fprintf(w, "left out: %s: %s\n", where, console.EscapeLine(s.GetSkipped()))
			continue
		}
		steps, models, tools = steps+1, models+int64(s.GetModelCalls()), tools+int64(s.GetToolCalls())
		for _, a := range s.GetChangedPrompts() {
			fmt.Fprintf(w, "note: %s: the prompt of model call %d has changed: %s\n", where, a.GetNumber(), console.JoinNames(a.GetParts()))
		}
		if d := s.GetDifference(); d != nil {
			fmt.Fprintf(w, "differs: %s%s: %s\n", where, callSuffix(d), differenceText(d))
			printDifference(w, d)
		}
	}
	if d := resp.GetRouting(); d != nil {
		fmt.Fprintf(w, "differs: %s: %s\n", console.EscapeLine(d.GetSubject()), differenceText(d))
		printDifference(w, d)
	}
	if !hasDifference(resp) {
		fmt.Fprintf(w, "same: %s, %s, %s, %s\n", console.FormatCount(steps, "step"), console.FormatCount(models, "model call"),
			console.FormatCount(tools, "tool call"), console.FormatCount(int64(resp.GetDecisions()), "decision"))
	}
}

func callSuffix(d *troupev1.Difference) string {
	if d.GetNumber() == 0 {
		return ""
	}
	return fmt.Sprintf(", call %d", d.GetNumber())
}

// differenceText describes the kind of a difference in words, for a person.
func differenceText(d *troupev1.Difference) string {
	about := console.EscapeLine(d.GetSubject())
	if about == "" {
		about = "a model"
	}
	switch d.GetKind() {
	case troupev1.DifferenceKind_DIFFERENCE_KIND_EXTRA_CALL:
		return about + " is called now, but not in the recording"
	case troupev1.DifferenceKind_DIFFERENCE_KIND_MISSING_CALL:
		return about + " is called in the recording, but not now"
	case troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_CALL:
		return "another call is made"
	case troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_ARGUMENTS:
		return about + " is called with other arguments"
	case troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_OUTCOME:
		return about + " ends in another way"
	case troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_TEXT:
		return "it says something else"
	case troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_RESULT:
		return "it leads to something else: " + about
	case troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_FAILURE:
		return "it ends in another way"
	case troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_ARTIFACT:
		return "the artifact " + about + " is stored now, but not in the recording"
	case troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_ROUTE:
		return "the workflow leads elsewhere"
	default:
		return "it differs"
	}
}
