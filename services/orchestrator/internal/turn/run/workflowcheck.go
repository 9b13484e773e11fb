package run

import (
	"maps"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/cursor"
)

// checkWorkflow fails with nondeterminism when a changed workflow no longer leads to the steps of an earlier turn.
// Other agents must not get the results or journals of those steps. done is how many steps have ended.
func checkWorkflow(b BegunTurn, done int, round []cursor.Task) error {
	if err := checkPriorSteps(b, done, round); err != nil {
		return err
	}
	return checkAnsweredSteps(b.Turn, done, round)
}

// checkPriorSteps checks that the workflow still leads to the inherited steps, and to the failed steps that run
// again.
func checkPriorSteps(b BegunTurn, done int, round []cursor.Task) error {
	agents := map[int]string{}
	maps.Copy(agents, b.Rerun)
	for _, r := range b.Turn.Steps {
		if r.Inherited {
			agents[r.Step] = r.Agent
		}
	}
	for _, task := range round {
		if agent, had := agents[task.Number]; had && agent != task.Decision.Step.Agent {
			return newStepChangedError(task.Number, agent)
		}
	}
	if len(round) > 0 {
		return nil
	}
	for step, agent := range agents {
		if step > done {
			return newStepChangedError(step, agent)
		}
	}
	return nil
}

func newStepChangedError(step int, agent string) error {
	return failure.Newf(failure.Nondeterminism, "turn",
		"the workflow has changed since step %d was done by agent %s, and does not lead there any more; say again what you want", step, agent)
}

// checkAnsweredSteps checks that the round still runs the agents whose calls were answered.
func checkAnsweredSteps(turn session.Turn, done int, round []cursor.Task) error {
	for _, answer := range turn.Answers {
		asked := answer.Agent
		if done >= answer.Step() || asked == "" {
			continue
		}
		leads := len(round) > 0 // false when no step remains
		for _, task := range round {
			if task.Number == answer.Step() {
				leads = asked == task.Decision.Step.Agent
			}
		}
		if !leads {
			return failure.Newf(failure.Nondeterminism, "turn",
				"the workflow has changed while a call of agent %s waited, and does not lead there any more; say again what you want", asked)
		}
	}
	return nil
}
