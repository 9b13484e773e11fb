package replay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// mailRecording returns the recording of a step that called a model, sent a letter with a tool, and called the
// model again.
func mailRecording() []execution.Entry {
	tool := execution.Entry{Number: 2, Phase: execution.Intent, Tool: "send", Arguments: `{"to":"bob"}`, Digest: stepjournal.CallDigest("send", `{"to":"bob"}`)}
	done := tool
	done.Phase, done.Status, done.Text = execution.Done, "success", "sent"
	return []execution.Entry{
		{Number: 1, Phase: execution.Done, Digest: "a b c", Reply: conversation.Assistant("a", "")},
		tool, done,
		{Number: 3, Phase: execution.Done, Digest: "a d c", Reply: conversation.Assistant("a", "Done.")},
	}
}

// repeatCalls repeats the recorded calls with these numbers.
func (j *Journal) repeatCalls(numbers ...int) *Journal {
	for _, n := range numbers {
		e, _ := j.Replay(n, execution.Done)
		j.AddRepeatedCall(n, e.Digest)
	}
	return j
}

func TestJournal_FindsNoDifferenceBetweenEqualRuns(t *testing.T) {
	was := execution.Result{Text: "Done.", ToolsCalled: []string{"send"}}
	j := New(mailRecording(), was).repeatCalls(1, 2, 3)
	require.Nil(t, j.Compare(was, was, nil))
	models, tools := j.RepeatedCalls()
	require.Equal(t, [2]int{2, 1}, [2]int{models, tools})
}

func TestJournal_FindsMissingCalls(t *testing.T) {
	was := execution.Result{Text: "Done."}
	d := New(mailRecording(), was).repeatCalls(1, 3).Compare(was, was, nil)
	require.Equal(t, &Difference{Kind: MissingCall, Number: 2, Subject: "send", Recorded: `send {"to":"bob"}`}, d)
}

func TestJournal_KeepsTheFirstDifference(t *testing.T) {
	was := execution.Result{Text: "Done."}
	j := New(mailRecording(), was).repeatCalls(1)
	require.True(t, failure.Is(j.AddUnexpectedCall(execution.Entry{Number: 2}), failure.Nondeterminism))
	require.Error(t, j.AddUnexpectedCall(execution.Entry{Number: 9, Tool: "other"}))
	d := j.Compare(was, execution.Result{}, failure.New(failure.Nondeterminism, "test", "strayed"))
	require.Equal(t, &Difference{Kind: OtherCall, Number: 2, Recorded: `send {"to":"bob"}`, Now: "a model call"}, d)
}

// The outcome of a call that was running when its worker was lost is unknown, and the replay returns it as such.
func TestJournal_ReplaysAnUnknownOutcome(t *testing.T) {
	was := execution.Result{Text: "Done."}
	j := New(mailRecording()[:2], was).repeatCalls(1)
	j.Record(execution.Entry{Number: 2, Phase: execution.Done, Tool: "send", Status: "unknown_outcome"})
	require.Nil(t, j.Compare(was, was, nil))
}

// The replay of a failed step ends without a difference where the recorded step failed.
func TestJournal_EndsWhereTheRecordedStepFailed(t *testing.T) {
	was := execution.Result{Failure: failure.New(failure.ResourceAPI, "test", "away")}
	end := func(numbers ...int) *Difference {
		j := New(mailRecording()[:3], was).repeatCalls(numbers...)
		return j.Compare(was, execution.Result{}, j.AddUnexpectedCall(execution.Entry{Number: 3}))
	}
	require.Nil(t, end(1, 2))
	require.Equal(t, ExtraCall, end(1).Kind, "the replay did not reach the failure")

	answers := New(mailRecording()[:3], was).repeatCalls(1, 2).Compare(was, execution.Result{Text: "Done."}, nil)
	require.Equal(t, &Difference{Kind: OtherFailure, Recorded: "resource_api: away", Now: "no failure"}, answers)
}

// The replay compares a planner's tasks in the result, because a planner makes no calls.
func TestJournal_FindsDifferentTasks(t *testing.T) {
	planning := func(tasks ...execution.PlannedTask) execution.Result {
		return execution.Result{Text: "So.", Tasks: tasks}
	}
	look, ask := execution.PlannedTask{Agent: "research", Text: "look"}, execution.PlannedTask{Agent: "clarification", Text: "ask"}
	was := planning(look, ask)
	compare := func(now execution.Result) *Difference { return New(nil, was).Compare(was, now, nil) }
	require.Nil(t, compare(planning(look, ask)))
	for name, test := range map[string]struct {
		now   []execution.PlannedTask
		shown string
	}{
		"none":          {nil, ""},
		"fewer":         {[]execution.PlannedTask{look}, "research: look"},
		"another order": {[]execution.PlannedTask{ask, look}, "clarification: ask\nresearch: look"},
		"another text": {
			[]execution.PlannedTask{look, {Agent: "clarification", Text: "delete everything"}},
			"research: look\nclarification: delete everything",
		},
		"another agent": {[]execution.PlannedTask{look, {Agent: "research", Text: "ask"}}, "research: look\nresearch: ask"},
	} {
		t.Run(name, func(t *testing.T) {
			want := &Difference{Kind: OtherResult, Subject: "tasks", Recorded: "research: look\nclarification: ask", Now: test.shown}
			require.Equal(t, want, compare(planning(test.now...)))
		})
	}
}

func TestJournal_ReportsChangedRequests(t *testing.T) {
	j := New(mailRecording(), execution.Result{})
	j.AddRepeatedCall(3, "z d c")
	j.AddRepeatedCall(1, "a b c")
	require.Equal(t, []ChangedRequest{{Number: 3, Parts: []string{"instructions"}}}, j.ChangedRequests())
}
