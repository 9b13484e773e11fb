package turn

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
)

// failingStep returns a step whose worker reports a failure.
func failingStep(mode failure.Mode) func(*scriptedStep) error {
	return func(s *scriptedStep) error {
		return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(failure.New(mode, "test", "it stopped"))})
	}
}

// eventsOfAgent returns the events of an agent.
func eventsOfAgent(agent string, events []*troupev1.Event) []*troupev1.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e *troupev1.Event) bool { return e.GetAgent() != agent })
}

// shownText returns the text of an agent that a client displays: the deltas since the last retraction.
func shownText(agent string, events []*troupev1.Event) (text string) {
	for _, e := range eventsOfAgent(agent, events) {
		if e.GetTextRetracted() != nil {
			text = ""
		}
		text += e.GetTextDelta().GetText()
	}
	return text
}

// A lost step runs again on another instance under a higher epoch. The client sees that the first attempt is
// retracted, and then the answer (guarantees F1, F2).
func TestTurn_RetriesALostStepOnAnotherInstance(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(*scriptedStep) error
		mode troupev1.FailureMode
	}{
		"broken off": {(*scriptedStep).cutConnections, troupev1.FailureMode_FAILURE_MODE_SYSTEM_NETWORK},
		"no result":  {func(*scriptedStep) error { return nil }, troupev1.FailureMode_FAILURE_MODE_AGENT_CONTRACT},
		"drained":    {failingStep(failure.InstanceDraining), troupev1.FailureMode_FAILURE_MODE_INSTANCE_DRAINING},
		"fenced":     {failingStep(failure.Fenced), troupev1.FailureMode_FAILURE_MODE_FENCED},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t)
			rig.addInstances("research", 1)
			rig.setScript("research", func(s *scriptedStep) error {
				rig.setScript("research", nil)
				if err := s.sendEvent(&troupev1.Event{Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: "I am"}}}); err != nil {
					return err
				}
				return c.lose(s)
			})
			runner := rig.newRunner(t, "one")
			events := runToEnd(t, runner, textRequest("s1", "r1"))
			require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
			lines := strings.Join(eventSummary(eventsOfAgent("research", durableEvents(events))), ", ")
			require.Contains(t, lines, "execute text_retracted research, execute step_started research, execute step_finished research")
			var first, second string
			for _, e := range eventsOfAgent("research", events) {
				switch {
				case e.GetTextRetracted() != nil:
					require.EqualValues(t, 1, e.GetAttempt(), "the number of the lost attempt")
					require.Equal(t, c.mode, e.GetTextRetracted().GetFailure().GetMode())
					first = e.GetInstanceId()
				case first != "":
					require.EqualValues(t, 2, e.GetAttempt())
					second = e.GetInstanceId()
				default:
					require.EqualValues(t, 1, e.GetAttempt())
				}
			}
			require.ElementsMatch(t, []string{"research-1", "research-2"}, []string{first, second})

			require.Equal(t, []string{"coordinator", "research", "research", "synthesis"}, rig.askedAgents())
			steps := rig.receivedSteps()
			require.Equal(t, []int32{1, 1, 2, 1}, []int32{steps[0].GetAttempt(), steps[1].GetAttempt(), steps[2].GetAttempt(), steps[3].GetAttempt()})
			require.Greater(t, steps[2].GetEpoch(), steps[1].GetEpoch())
			require.Equal(t, steps[2].GetEpoch(), steps[3].GetEpoch())
			require.Equal(t, steps[1].GetBaseSequence(), steps[2].GetBaseSequence())
			require.Empty(t, cmp.Diff(historyTexts(steps[1]), historyTexts(steps[2])), "the same history")
			require.Empty(t, cmp.Diff(durableEvents(events), durableEvents(runToEnd(t, runner, textRequest("s1", "r1"))), protocmp.Transform()))
		})
	}
}

// A worker that returns after it was declared lost can write no more (guarantee F3).
func TestTurn_FencesAnAbandonedWorker(t *testing.T) {
	rig := newRig(t)
	rig.addInstances("synthesis", 1)
	resurrected := make(chan error, 1)
	release := make(chan struct{})
	rig.setScript("synthesis", func(s *scriptedStep) error {
		rig.setScript("synthesis", nil)
		s.worker.conns.closeAll()
		<-release
		_, err := s.storeResult(func(r *troupev1.StepResult) { r.Text = "too late" })
		resurrected <- err
		return err
	})
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	close(release)
	require.Equal(t, failure.Fenced, failure.ModeOf(receive(t, resurrected)))
	require.Equal(t, "I am synthesis.", turnResult(events).GetText())
	kept, err := rig.memory.LoadHistory(t.Context(), session.Ref{Session: "s1"}, 0, 10)
	require.NoError(t, err)
	require.Len(t, kept, 3, "the user, research and synthesis")
}

// A step that was committed before its worker was lost does not run again.
func TestTurn_DoesNotRerunACommittedStep(t *testing.T) {
	rig := newRig(t)
	rig.addInstances("research", 1)
	rig.setScript("research", func(s *scriptedStep) error {
		if err := s.sendEvent(&troupev1.Event{Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: "It is "}}}); err != nil {
			return err
		}
		if _, err := s.storeResult(func(r *troupev1.StepResult) { r.Text = "It is committed." }); err != nil {
			return err
		}
		return s.cutConnections()
	})
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	require.Equal(t, "It is committed.", shownText("research", events), "the end of what it said was lost on the way")
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, []string{"coordinator", "research", "synthesis"}, rig.askedAgents())
	require.Equal(t, "research-", eventsOfAgent("research", events)[0].GetInstanceId()[:9])
	require.Equal(t, "It is committed.", rig.receivedSteps()[2].GetPrior()[1].GetText())
	require.Greater(t, rig.receivedSteps()[2].GetEpoch(), rig.receivedSteps()[1].GetEpoch())
}

// A step that crashes its workers does not crash all of them (guarantee F22).
func TestTurn_FailsAfterAStepIsLostThreeTimes(t *testing.T) {
	rig := newRig(t)
	rig.addInstances("research", 3)
	rig.setScript("research", (*scriptedStep).cutConnections)
	runner := rig.newRunner(t, "one")
	events := runToEnd(t, runner, textRequest("s1", "r1"))
	result := turnResult(events)
	require.Equal(t, outcomeFailed, result.GetOutcome())
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_ATTEMPTS_EXHAUSTED, result.GetFailure().GetMode(), "%v", result)
	require.Contains(t, result.GetFailure().GetMessage(), "step 2 of agent research was lost 3 times; the last time: instance research-")
	require.Len(t, strings.Split(result.GetFailure().GetFacts()["instances"], ", "), 3)
	require.Equal(t, []string{"coordinator", "research", "research", "research"}, rig.askedAgents())
	require.Equal(t, session.Failed, rig.state(t, "s1"))

	rig.setScript("research", nil)
	require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, runner, textRequest("s1", "r2"))).GetOutcome())
}

// A step whose worker could not reach the memory service runs again once the service is back, even if there is
// no other instance.
func TestTurn_DoesNotBlameTheInstanceForAMemoryOutage(t *testing.T) {
	rig := newRig(t)
	rig.setScript("research", func(s *scriptedStep) error {
		rig.setScript("research", nil)
		return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(failure.New(failure.SystemNetwork, "test", "away").With("lost_lease", "true"))})
	})
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, []string{"coordinator", "research", "research", "synthesis"}, rig.askedAgents())
	require.EqualValues(t, 2, rig.receivedSteps()[2].GetAttempt())
}

// A worker that violated the contract may still be running. The turn is reclaimed from it before the step
// fails.
func TestTurn_FencesAWorkerThatViolatesTheContract(t *testing.T) {
	rig := newRig(t)
	rig.addInstances("research", 1)
	runner := rig.newRunner(t, "one")
	watched := &slowReclaimMemory{runner.cfg.Memory, make(chan struct{}), make(chan struct{})}
	close(watched.release)
	replaceRunner(t, runner, func(c *Config) { c.Memory = watched })
	rig.setScript("research", func(s *scriptedStep) error {
		return s.sendEvent(&troupev1.Event{Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: strings.Repeat("a", 1<<20)}}})
	})
	result := turnResult(runToEnd(t, runner, textRequest("s1", "r1")))
	require.Equal(t, outcomeFailed, result.GetOutcome())
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_AGENT_CONTRACT, result.GetFailure().GetMode(), "%v", result)
	receive(t, watched.applied)
	require.Equal(t, []string{"coordinator", "research"}, rig.askedAgents())
}

// Another orchestrator takes over the turn while an attempt is lost. The first orchestrator does not continue the
// turn.
func TestTurn_DoesNotContinueATurnTakenOverByAnother(t *testing.T) {
	rig := newRig(t)
	rig.addInstances("research", 1)
	first, second := rig.newRunner(t, "one"), rig.newRunner(t, "two")
	working, lose := make(chan struct{}), make(chan struct{})
	rig.setScript("research", func(s *scriptedStep) error {
		rig.setScript("research", nil)
		close(working)
		<-lose
		return nil // without a result
	})
	left := runUntilStepStarts(t, first, textRequest("s1", "r1"), "research")
	receive(t, working)
	rig.expireLeases()
	release := make(chan struct{})
	rig.setScript("synthesis", func(s *scriptedStep) error { <-release; return s.commitAnswer("I am synthesis.") })
	done := make(chan []*troupev1.Event, 1)
	go func() { done <- runToEnd(t, second, textRequest("s1", "r1")) }()
	require.Eventually(t, func() bool { return len(rig.askedAgents()) == 4 }, patience, time.Millisecond)
	close(lose)
	require.Eventually(t, func() bool { return first.active.FindBySession(session.Ref{Session: "s1"}) == nil }, patience, time.Millisecond)
	close(release)
	require.NoError(t, receive(t, left), "its watchers go on with what the second stores")
	require.Equal(t, outcomeCompleted, turnResult(receive(t, done)).GetOutcome())
	require.Equal(t, []string{"coordinator", "research", "research", "synthesis"}, rig.askedAgents())
	require.EqualValues(t, 2, rig.receivedSteps()[2].GetAttempt(), "it may have a journal")
	require.EqualValues(t, 1, rig.receivedSteps()[3].GetAttempt())
}
