package replay

import (
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Kind is the kind of a difference.
type Kind string

// The kinds of differences, named as on the wire.
const (
	ExtraCall      Kind = "extra_call"
	MissingCall    Kind = "missing_call"
	OtherCall      Kind = "other_call"
	OtherArguments Kind = "other_arguments"
	OtherOutcome   Kind = "other_outcome"
	OtherText      Kind = "other_text"
	OtherResult    Kind = "other_result"
	OtherFailure   Kind = "other_failure"
	OtherArtifact  Kind = "other_artifact"
)

// Difference is the first difference between a replay and its recording.
type Difference struct {
	Kind     Kind
	Number   int    // of the call in the step, from 1 (0 if the difference is not about a call)
	Subject  string // what it is about: a tool, or a part of the result
	Recorded string // empty: nothing
	Now      string // empty: nothing
}

// String returns the difference as one line, cut to a limit.
func (d Difference) String() string {
	const most = 200
	return fmt.Sprintf("%s %s at %d: recorded %s, now %s", d.Kind, d.Subject, d.Number, conversation.Brief(d.Recorded, most), conversation.Brief(d.Now, most))
}

// describeModelCall describes a model call. A call of a handler is not part of the conversation.
func describeModelCall(aside bool) string {
	if aside {
		return "a model call beside the conversation"
	}
	return "a model call"
}

// formatCall formats a call for a report.
func formatCall(e execution.Entry) string {
	if e.Tool == "" {
		return describeModelCall(e.SideCall)
	}
	return strings.TrimSpace(e.Tool + " " + e.Arguments)
}

// formatOutcome formats the end of a tool call for a report.
func formatOutcome(e execution.Entry) string { return e.Status + ": " + e.Text }

// callDifference returns the difference between a recorded call, if there is one, and the call that the replay
// would make.
func callDifference(was execution.Entry, recorded bool, now execution.Entry) Difference {
	switch {
	case !recorded:
		return Difference{Kind: ExtraCall, Number: now.Number, Subject: now.Tool, Now: formatCall(now)}
	case was.Tool != now.Tool || was.Tool == "":
		return Difference{Kind: OtherCall, Number: now.Number, Recorded: formatCall(was), Now: formatCall(now)}
	case was.Digest == now.Digest: // the tool was not there then
		return Difference{Kind: OtherOutcome, Number: now.Number, Subject: now.Tool, Recorded: formatOutcome(was), Now: "the tool is there, and would be called"}
	default:
		return Difference{Kind: OtherArguments, Number: now.Number, Subject: now.Tool, Recorded: was.Arguments, Now: now.Arguments}
	}
}

// Compare returns the first difference between the recorded result and the outcome of the replay, which is a
// result or an error. It returns nil if there is none. The run of the agent must have ended.
func (j *Journal) Compare(was, now execution.Result, err error) *Difference {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.firstDifference != nil {
		return j.firstDifference
	}
	if j.reachedEnd {
		return nil
	}
	if d := compareFailures(was.Failure, err); d != nil {
		return d
	}
	if left := j.unusedCalls(); len(left) > 0 {
		e := j.recorded[left[0]][execution.Done]
		return &Difference{Kind: MissingCall, Number: left[0], Subject: e.Tool, Recorded: formatCall(e)}
	}
	if err != nil {
		return nil
	}
	if was.Text != now.Text {
		return &Difference{Kind: OtherText, Recorded: was.Text, Now: now.Text}
	}
	return compareResults(was, now)
}

// compareFailures returns the difference between two failures (nil if there is none).
func compareFailures(was *failure.Error, err error) *Difference {
	switch {
	case was == nil && err == nil:
		return nil
	case was == nil:
		return &Difference{Kind: OtherFailure, Recorded: "no failure", Now: formatError(err)}
	case err == nil:
		return &Difference{Kind: OtherFailure, Recorded: formatError(was), Now: "no failure"}
	case was.Mode != failure.ModeOf(err):
		return &Difference{Kind: OtherFailure, Recorded: formatError(was), Now: formatError(err)}
	default:
		return nil
	}
}

// formatError formats an error with its mode.
func formatError(err error) string {
	return fmt.Sprintf("%s: %s", failure.ModeOf(err), failure.Plain(err))
}

// compareResults returns the difference between two results, apart from their text (nil if there is none).
func compareResults(was, now execution.Result) *Difference {
	for _, part := range []struct{ name, was, now string }{
		{"the next agent", was.NextAgent, now.NextAgent},
		{"tasks", formatTasks(was.Tasks), formatTasks(now.Tasks)},
		{"calls that wait", formatPending(was.Pending), formatPending(now.Pending)},
		{"a question to the user", fmt.Sprint(was.InputRequired), fmt.Sprint(now.InputRequired)},
		{"stopped", fmt.Sprint(was.Stopped), fmt.Sprint(now.Stopped)},
		{"the limit of iterations reached", fmt.Sprint(was.MaxIterations), fmt.Sprint(now.MaxIterations)},
		{"tools called", strings.Join(was.ToolsCalled, ", "), strings.Join(now.ToolsCalled, ", ")},
		{"observations", strings.Join(was.Observations, "\n"), strings.Join(now.Observations, "\n")},
	} {
		if part.was != part.now {
			return &Difference{Kind: OtherResult, Subject: part.name, Recorded: part.was, Now: part.now}
		}
	}
	return nil
}

// formatPending formats waiting calls for a report.
func formatPending(calls []execution.Pending) string {
	lines := make([]string, len(calls))
	for i, p := range calls {
		lines[i] = fmt.Sprintf("%s %s for %s", p.Tool, p.Arguments, p.Needs)
	}
	return strings.Join(lines, "\n")
}

// formatTasks formats the tasks of a planner for a report.
func formatTasks(tasks []execution.PlannedTask) string {
	lines := make([]string, len(tasks))
	for i, t := range tasks {
		lines[i] = t.Agent + ": " + t.Text
	}
	return strings.Join(lines, "\n")
}
