package turn

import (
	"testing"

	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// While a call is pending, the workflow is redeployed with another agent in the step. The new agent gets neither
// the answer nor the journal of the old agent.
// Req: AD-26
func TestRunner_SendsAnAnswerToTheAgentThatAsked(t *testing.T) {
	rig := newRig(t)
	call := approvalCall()
	call.Id, call.Agent = "1-1-2", "coordinator"
	rig.setScript("coordinator", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) {
			r.Text, r.InputRequired, r.Pending = "It waits.", true, []*troupev1.PendingCall{call}
		})
	})
	require.Equal(t, inputRequired, turnResult(runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))).GetOutcome())

	flow, _ := rig.workflows.Find("research-assistant")
	steps := map[string]workflow.Step{}
	for name, step := range flow.Steps {
		if step.Agent == "coordinator" {
			step.Agent = "clarification"
		}
		steps[name] = step
	}
	flow.Steps = steps
	asked := len(rig.receivedSteps())
	result := turnResult(runToEnd(t, rig.newRunner(t, "two"), answerRequest("r2", approvalAnswer("1-1-2"))))
	require.Len(t, rig.receivedSteps(), asked, "no agent was asked")
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_NONDETERMINISM, result.GetFailure().GetMode())
	require.Contains(t, result.GetFailure().GetMessage(), "the workflow has changed while a call of agent coordinator waited")
}

// A second request with answers waits for the turn of the first, even if it asks to interrupt.
func TestRunner_AnswersInterruptNoTurn(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	rig.makeResearchWait(approvalCall())
	runToEnd(t, runner, textRequest("s1", "r1"))
	runs, goOn := make(chan struct{}, 1), make(chan struct{})
	rig.setScript("research", func(s *scriptedStep) error {
		runs <- struct{}{}
		<-goOn
		return s.commitAnswer("Sent.")
	})
	first := startRequest(t, runner, answerRequest("r2", approvalAnswer("1-2-2")))
	receive(t, runs)
	again := answerRequest("r3", approvalAnswer("1-2-2"))
	again.OnBusy = request.Interrupt
	second := make(chan error, 1)
	go func() {
		for _, err := range runner.Orchestrate(t.Context(), again) {
			second <- err
			return
		}
	}()
	awaitQueue(t, runner, 1)
	close(goOn)
	require.Equal(t, outcomeCompleted, turnResult(receive(t, first)).GetOutcome())
	require.ErrorContains(t, receive(t, second), "nothing waits in the session")
}
