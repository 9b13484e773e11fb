package turn

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

var (
	urgentPriority = int32(9)
	blueLabels     = request.Labels{
		Profile: "fast", Metadata: map[string]string{"team": "blue", "tier": "gold"}, Priority: &urgentPriority,
		Tags: []string{"x", "y"},
	}
)

func labelledRequest(req request.Request, l request.Labels) request.Request {
	req.Labels = l
	return req
}

// requireLabels checks the labels of all steps from the given number on.
func (r *rig) requireLabels(t *testing.T, from int, l request.Labels, requests ...string) {
	t.Helper()
	steps := r.receivedSteps()[from:]
	require.Len(t, steps, len(requests))
	for i, s := range steps {
		require.Equal(t, l.Profile, s.GetProfile())
		require.Empty(t, cmp.Diff(maps.Clone(l.Metadata), s.GetMetadata()))
		require.Equal(t, l.Priority, s.Priority) //nolint:protogetter // whether it is there counts
		require.Equal(t, l.Tags, s.GetTags())
		require.Equal(t, requests[i], s.GetRequestId())
	}
}

// Every step has the labels, even after a retry or a takeover.
func TestTurn_LabelsSurviveLostWorkersAndOrchestrators(t *testing.T) {
	rig := newRig(t)
	rig.addInstances("research", 1)
	rig.setScript("research", func(s *scriptedStep) error { rig.setScript("research", nil); return s.cutConnections() })
	runner := rig.newRunner(t, "one")
	require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, runner, labelledRequest(textRequest("s1", "r1"), blueLabels))).GetOutcome())
	rig.requireLabels(t, 0, blueLabels, "r1", "r1", "r1", "r1")
	runToEnd(t, runner, textRequest("s1", "r2"))
	rig.requireLabels(t, 4, request.Labels{}, "r2", "r2", "r2")

	_, ref, _ := rig.loseOwnerDuringResearch(t, labelledRequest(textRequest("s2", "r3"), blueLabels))
	second := rig.newRunner(t, "two")
	second.reconciler.TakeOver(t.Context(), ref)
	require.Equal(t, outcomeCompleted, turnResult(watchedEvents(t, second, ref, 0)).GetOutcome())
	rig.requireLabels(t, 7, blueLabels, "r3", "r3", "r3", "r3")
}

// A request with answers need not repeat the labels.
func TestTurn_AnswersKeepLabels(t *testing.T) {
	for name, c := range map[string]struct{ said, want request.Labels }{
		"none": {request.Labels{}, blueLabels},
		"other": {request.Labels{Profile: "slow"}, request.Labels{
			Profile: "slow", Metadata: blueLabels.Metadata, Priority: blueLabels.Priority,
			Tags: blueLabels.Tags,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t)
			runner := rig.newRunner(t, "one")
			rig.makeResearchWait(approvalCall())
			runToEnd(t, runner, labelledRequest(textRequest("s1", "r1"), blueLabels))
			rig.setScript("research", nil)
			answer := answerRequest("r2", execution.Answer{ID: "1-2-2", Verdict: execution.Approve})
			before := len(rig.receivedSteps())
			require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, runner, labelledRequest(answer, c.said))).GetOutcome())
			rig.requireLabels(t, before, c.want, "r2", "r2")
		})
	}
}

// Two requests that differ only in their labels are different requests.
func TestRequest_FingerprintIncludesLabels(t *testing.T) {
	plain := textRequest("s1", "r1")
	require.Equal(t, plain.Fingerprint(), labelledRequest(plain, request.Labels{Metadata: map[string]string{}}).Fingerprint())
	same := request.Labels{Profile: blueLabels.Profile, Metadata: maps.Clone(blueLabels.Metadata), Priority: new(int32(9)), Tags: slices.Clone(blueLabels.Tags)}
	require.Equal(t, labelledRequest(plain, blueLabels).Fingerprint(), labelledRequest(plain, same).Fingerprint())
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	events := runToEnd(t, runner, labelledRequest(plain, blueLabels))
	_, err := runner.admit.Admit(t.Context(), plain)
	require.True(t, failure.Is(err, failure.KeyReused), "%v", err)

	ref := trace.Ref{Trace: events[0].GetTraceId()}
	stored, err := runner.cfg.Traces.Store().Load(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, blueLabels, request.DecodeLabels(stored.Turn.Labels))
	require.Equal(t, request.Labels{}, request.DecodeLabels("{"))
	require.Equal(t, session.Ready, rig.state(t, "s1"))
}

// Answers that are sent again keep the labels too, when the begin of their turn was in doubt.
func TestTurn_AnswersWhoseBeginWasLostKeepLabels(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	rig.makeResearchWait(approvalCall())
	runToEnd(t, runner, labelledRequest(textRequest("s1", "r1"), blueLabels))
	before := len(rig.receivedSteps())
	awaitIdle(t, runner)
	replaceRunner(t, runner, func(c *Config) { c.Memory = &firstReplyLostMemory{Memory: runner.cfg.Memory} })
	for _, err := range runner.Orchestrate(t.Context(), answerRequest("r2", approvalAnswer("1-2-2"))) {
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, runner, answerRequest("r2", approvalAnswer("1-2-2")))).GetOutcome())
	rig.requireLabels(t, before, blueLabels, "r2", "r2")
}
