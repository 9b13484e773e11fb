package replay

import (
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Kind says in what respect a replay differs from its recording.
type Kind string

// These are the kinds of differences, named as on the wire.
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

// Difference describes one difference between a replay and its recording.
type Difference struct {
	Kind     Kind
	Number   int    // number of the call in the step, from 1 (0 if the difference is not about a call)
	Subject  string // the tool or the part of the result that differs
	Recorded string // value in the recording (empty means none)
	Now      string // value in the replay (empty means none)
}

// String returns the difference as one line of limited length.
func (d Difference) String() string {
	const most = 200
	return fmt.Sprintf("%s %s at %d: recorded %s, now %s", d.Kind, d.Subject, d.Number, conversation.Excerpt(d.Recorded, most), conversation.Excerpt(d.Now,
		most))
}

// describeModelCall describes a model call. isSideCall says that a handler made it, outside of the conversation.
func describeModelCall(isSideCall bool) string {
	if isSideCall {
		return "a model call outside of the conversation"
	}
	return "a model call"
}

// formatCall returns a call as text for a Difference.
func formatCall(e execution.Entry) string {
	if e.Tool == "" {
		return describeModelCall(e.SideCall)
	}
	return strings.TrimSpace(e.Tool + " " + e.Arguments)
}

// formatOutcome returns the outcome of a tool call as text for a Difference.
func formatOutcome(e execution.Entry) string { return e.Status + ": " + e.Text }

// callDifference returns the difference between a recorded call and the call that the replay is about to make.
// recorded is false if there is no recorded call.
func callDifference(was execution.Entry, recorded bool, now execution.Entry) Difference {
	switch {
	case !recorded:
		return Difference{Kind: ExtraCall, Number: now.Number, Subject: now.Tool, Now: formatCall(now)}
	case was.Tool != now.Tool || was.Tool == "":
		return Difference{Kind: OtherCall, Number: now.Number, Recorded: formatCall(was), Now: formatCall(now)}
	case was.Digest == now.Digest: // the recorded agent did not have the tool
		return Difference{
			Kind: OtherOutcome, Number: now.Number, Subject: now.Tool, Recorded: formatOutcome(was),
			Now: "the tool exists now and would be called",
		}
	default:
		return Difference{Kind: OtherArguments, Number: now.Number, Subject: now.Tool, Recorded: was.Arguments, Now: now.Arguments}
	}
}

// Compare compares the recorded result with the outcome of the replay, which is a result or an error. It returns
// the first difference, or nil. Call it after the agent has returned.
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

// compareFailures returns the difference between two failures (nil if they are equal).
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

// formatError returns an error and its mode as text.
func formatError(err error) string {
	return fmt.Sprintf("%s: %s", failure.ModeOf(err), failure.PlainMessage(err))
}

// compareResults returns the first difference between two results (nil if there is none). It compares what the agent
// decided: the fields in its list. It compares neither texts nor usage.
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

// formatPending returns waiting calls as text for a Difference.
func formatPending(calls []execution.Pending) string {
	lines := make([]string, len(calls))
	for i, p := range calls {
		lines[i] = fmt.Sprintf("%s %s for %s", p.Tool, p.Arguments, p.Needs)
	}
	return strings.Join(lines, "\n")
}

// formatTasks returns the tasks of a planner as text for a Difference.
func formatTasks(tasks []execution.PlannedTask) string {
	lines := make([]string, len(tasks))
	for i, t := range tasks {
		lines[i] = t.Agent + ": " + t.Text
	}
	return strings.Join(lines, "\n")
}
