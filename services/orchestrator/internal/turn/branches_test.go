package turn

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/decide"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// declareSteps makes the mesh use a workflow with the given steps, which begins at step a.
func (r *rig) declareSteps(t *testing.T, steps string) {
	t.Helper()
	r.declareStepsFrom(t, "a", steps)
}

// declareStepsFrom makes the mesh use a workflow with the given steps and entry.
func (r *rig) declareStepsFrom(t *testing.T, entry, steps string) {
	t.Helper()
	var err error
	r.workflows, err = workflow.Load(fstest.MapFS{"w.yaml": {Data: []byte(
		"apiVersion: troupe.dev/v1\nkind: Workflow\nmetadata: {name: w}\nspec:\n  entry: " + entry + "\n  steps:\n" + steps)}}, "")
	require.NoError(t, err)
}

// threeBranches has three parallel branches, and a step that sees the results of all of them.
const threeBranches = `
    a: {parallel: [b, c, d], join: e}
    b: {agent: coordinator, next: e}
    c: {agent: clarification, next: e}
    d: {agent: research, next: e}
    e: {agent: synthesis, end: true}
`

// priorTexts returns the texts of the earlier steps that a step request contains.
func priorTexts(req *troupev1.ExecuteStepRequest) (texts []string) {
	for _, r := range req.GetPrior() {
		texts = append(texts, r.GetText())
	}
	return texts
}

func newBranchesRig(t *testing.T) *rig {
	t.Helper()
	rig := newRig(t)
	rig.declareSteps(t, threeBranches)
	rig.setScript("coordinator", nil)
	return rig
}

func TestTurn_RunsBranchesConcurrentlyAndJoinsThem(t *testing.T) {
	rig := newBranchesRig(t)
	var meet sync.WaitGroup // no branch continues before all have started
	meet.Add(3)
	for _, agent := range []string{"coordinator", "clarification", "research"} {
		rig.setScript(agent, func(s *scriptedStep) error { meet.Done(); meet.Wait(); return s.commitAnswer("I am " + agent + ".") })
	}
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, []string{"coordinator", "clarification", "research", "synthesis"}, events[len(events)-2].GetAggregate().GetAgents())

	steps := rig.receivedSteps()
	slices.SortFunc(steps, func(a, b *troupev1.ExecuteStepRequest) int { return int(a.GetStep() - b.GetStep()) })
	for i, req := range steps[:3] {
		require.EqualValues(t, i+1, req.GetStep())
		require.True(t, req.GetSilent())
		require.Empty(t, req.GetPrior())
	}
	require.False(t, steps[3].GetSilent())
	require.Equal(t, []string{"I am coordinator.", "I am clarification.", "I am research."}, priorTexts(steps[3]))
	messages, err := rig.memory.LoadHistory(t.Context(), session.Ref{Session: "s1"}, 0, 10)
	require.NoError(t, err)
	require.Len(t, messages, 2, "the user's, and the answer")
}

// A lost branch is retried only after the other branches have ended. Its worker is fenced then, and no branch runs
// twice.
func TestTurn_RetriesALostBranchAfterTheOthers(t *testing.T) {
	rig := newBranchesRig(t)
	rig.addInstances("research", 1)
	working, lost := make(chan struct{}), make(chan struct{})
	var once sync.Once
	rig.setScript("coordinator", func(s *scriptedStep) error { close(working); <-lost; return s.commitAnswer("I am coordinator.") })
	rig.setScript("research", func(s *scriptedStep) error {
		first := false
		once.Do(func() { first = true })
		if first {
			<-working
			close(lost)
			return nil // without a result
		}
		return s.commitAnswer("I am research.")
	})
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	asked := rig.askedAgents()
	slices.Sort(asked[:3])
	require.Equal(t, []string{"clarification", "coordinator", "research", "research", "synthesis"}, asked)
	steps := rig.receivedSteps()
	require.EqualValues(t, 2, steps[3].GetAttempt())
	require.Greater(t, steps[3].GetEpoch(), steps[0].GetEpoch())
	require.Equal(t, []string{"I am coordinator.", "I am clarification.", "I am research."}, priorTexts(steps[4]))
}

// A takeover during a round runs only the branches that were not committed, under the same numbers.
func TestTurn_TakeoverDuringARoundRunsOnlyOpenBranches(t *testing.T) {
	rig := newBranchesRig(t)
	first, second := rig.newRunner(t, "one"), rig.newRunner(t, "two")
	working := make(chan struct{})
	rig.setScript("clarification", func(s *scriptedStep) error {
		rig.setScript("clarification", nil)
		close(working)
		<-s.stream.Context().Done()
		return s.stream.Context().Err()
	})
	req := textRequest("s1", "r1")
	runUntilStepStarts(t, first, req, "clarification")
	receive(t, working)
	require.Eventually(t, func() bool {
		begun, err := first.cfg.Memory.BeginTurn(t.Context(), memory.Begin{
			Ref: req.Ref, TurnID: req.TurnID(), TraceID: decide.NewTraceID(), Fingerprint: req.Fingerprint(), LeaseTTL: lease.Duration, Window: 10, LookupOnly: true,
		})
		return err == nil && len(begun.Turn.Steps) == 2
	}, patience, 10*time.Millisecond)
	rig.expireLeases()
	events := runToEnd(t, second, req)
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	asked := rig.askedAgents()
	slices.Sort(asked[:3])
	require.Equal(t, []string{"clarification", "coordinator", "research", "clarification", "synthesis"}, asked)
	steps := rig.receivedSteps()
	require.EqualValues(t, 2, steps[3].GetStep())
	require.EqualValues(t, 2, steps[3].GetAttempt())
	require.Equal(t, []string{"I am coordinator.", "I am clarification.", "I am research."}, priorTexts(steps[4]))
}

// A branch that fails the turn stops the other branches (AD-28).
func TestTurn_FailedBranchStopsTheOtherBranches(t *testing.T) {
	rig := newBranchesRig(t)
	stopped, working := make(chan struct{}), make(chan struct{})
	rig.setScript("coordinator", func(s *scriptedStep) error {
		close(working)
		<-s.stream.Context().Done()
		close(stopped)
		return s.stream.Context().Err()
	})
	rig.setScript("research", func(s *scriptedStep) error {
		<-working
		return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(failure.New(failure.AgentLogic, "test", "broken"))})
	})
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	require.Equal(t, "broken", turnResult(events).GetFailure().GetMessage())
	receive(t, stopped)
}

// failFirstAttempts makes an agent fail with a retriable mode the given number of times before it answers.
func failFirstAttempts(rig *rig, agent string, times int) {
	left := times
	rig.setScript(agent, func(s *scriptedStep) error {
		if left--; left < 0 {
			return s.commitAnswer("I am " + agent + ".")
		}
		return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(failure.New(failure.ResourceAPI, "test", "down"))})
	})
}

// A request replaces what its workflow says about failed steps, also when another orchestrator takes the turn over.
// Req: OC-19
func TestTurn_AppliesTheErrorStrategyOfTheRequest(t *testing.T) {
	for name, c := range map[string]struct {
		declared string
		strategy workflow.ErrorStrategy
		times    int
		asked    []string
		failed   bool
	}{
		"as declared":             {"continue: true", "", 1, []string{"research", "synthesis"}, false},
		"fail fast":               {"continue: true", workflow.FailFast, 1, []string{"research"}, true},
		"fail fast, no retries":   {"retry: {attempts: 2, backoff: 1ms}", workflow.FailFast, 1, []string{"research"}, true},
		"continue":                {"fallback: c", workflow.Continue, 1, []string{"research", "synthesis"}, false},
		"retry":                   {"fallback: c, retry: {attempts: 1, backoff: 1ms}", workflow.Retry, 1, []string{"research", "research", "synthesis"}, false},
		"retry, then fail":        {"fallback: c, retry: {attempts: 1, backoff: 1ms}", workflow.Retry, 2, []string{"research", "research"}, true},
		"fallback":                {"fallback: c, retry: {attempts: 1, backoff: 1ms}", workflow.Fallback, 1, []string{"research", "clarification"}, false},
		"fallback, none is there": {"continue: true", workflow.Fallback, 1, []string{"research"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t)
			other := ""
			if strings.Contains(c.declared, "c") && strings.Contains(c.declared, "fallback") {
				other = "    c: {agent: clarification, end: true}\n"
			}
			rig.declareSteps(t, "    a: {agent: research, next: b, onError: {"+c.declared+"}}\n    b: {agent: synthesis, end: true}\n"+other)
			failFirstAttempts(rig, "research", c.times)
			req := textRequest("s1", "r1")
			req.ErrorStrategy = c.strategy
			runner := rig.newRunner(t, "one")
			events := runToEnd(t, runner, req)
			require.Equal(t, c.asked, rig.askedAgents())
			require.Equal(t, c.failed, turnResult(events).GetOutcome() != outcomeCompleted, "%v", turnResult(events))
			stored, err := runner.cfg.Traces.Store().Load(t.Context(), trace.Ref{Trace: events[0].GetTraceId()})
			require.NoError(t, err)
			require.Equal(t, c.strategy, request.LabelsFromTrace(stored).ErrorStrategy)
		})
	}
}

// Req: OC-19
func TestTurn_AppliesTheErrorPolicyOfAFailedStep(t *testing.T) {
	for name, c := range map[string]struct {
		step   string
		times  int
		asked  []string
		failed bool
	}{
		"fail fast is the default": {"next: b", 1, []string{"research"}, true},
		"continue":                 {"next: b, onError: {continue: true}", 1, []string{"research", "synthesis"}, false},
		"continue, as it says": {"next: b, onError: {continue: true}, then: [{when: {failed: true}, next: c}]", 1, []string{
			"research",
			"clarification",
		}, false},
		"retry": {
			"next: b, onError: {retry: {attempts: 2, backoff: 1ms}}", 2,
			[]string{"research", "research", "research", "synthesis"},
			false,
		},
		"retry, then fail": {"next: b, onError: {retry: {attempts: 1, backoff: 1ms}}", 2, []string{"research", "research"}, true},
		"retry, then fall back": {
			"next: b, onError: {retry: {attempts: 1, backoff: 1ms}, fallback: c}", 2,
			[]string{"research", "research", "clarification"},
			false,
		},
		"fallback": {"next: b, onError: {fallback: c}", 1, []string{"research", "clarification"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t)
			other := ""
			if strings.Contains(c.step, "next: c") || strings.Contains(c.step, "fallback: c") {
				other = "    c: {agent: clarification, end: true}\n"
			}
			rig.declareSteps(t, "    a: {agent: research, "+c.step+"}\n    b: {agent: synthesis, end: true}\n"+other)
			failFirstAttempts(rig, "research", c.times)
			events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
			require.Equal(t, c.asked, rig.askedAgents())
			require.Equal(t, c.failed, turnResult(events).GetOutcome() != outcomeCompleted, "%v", turnResult(events))
			if c.failed {
				require.Equal(t, "down", turnResult(events).GetFailure().GetMessage(), "the step's own failure")
			}
			var finished []*troupev1.StepFinished
			for _, e := range events {
				if f := e.GetStepFinished(); f != nil && e.GetAgent() == "research" {
					finished = append(finished, f)
				}
			}
			require.Len(t, finished, 1, "a step ends once")
			require.Equal(t, name != "retry", finished[0].GetResult().GetFailure() != nil, "marked as failed")
			for i, req := range rig.receivedSteps() {
				if req.GetAgent() == "research" {
					require.EqualValues(t, i+1, req.GetAttempt())
				}
			}
		})
	}
}

// A fallback step runs after a failed step, but not after a rejected one.
func TestTurn_RejectedStepHasNoFallback(t *testing.T) {
	rig := newRig(t)
	rig.declareSteps(t, "    a: {agent: research, end: true, onError: {fallback: b, retry: {backoff: 1ms}}}\n    b: {agent: synthesis, end: true}\n")
	rig.setScript("research", func(s *scriptedStep) error {
		return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(failure.New(failure.PolicySecurity, "test", "no"))})
	})
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_POLICY_SECURITY, turnResult(events).GetFailure().GetMode())
	require.Empty(t, cmp.Diff([]string{"research"}, rig.askedAgents()))
}
