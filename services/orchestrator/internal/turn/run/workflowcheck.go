package run

import (
	"maps"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/cursor"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/publish"
)

// checkWorkflow fails with nondeterminism when the workflow has changed since an earlier turn, so that
// it no longer leads to the steps of that turn: no other agent may get their results or journals.
func (t *Turn) checkWorkflow(round []cursor.Task) error {
	if err := t.checkPriorSteps(round); err != nil {
		return err
	}
	return t.checkAnsweredStep(round)
}

// checkPriorSteps checks the steps that were inherited, and those that failed and run again.
func (t *Turn) checkPriorSteps(round []cursor.Task) error {
	agents := map[int]string{}
	maps.Copy(agents, t.begun.Rerun)
	for _, r := range t.begun.Turn.Steps {
		if r.Inherited {
			agents[r.Step] = r.Agent
		}
	}
	for _, task := range round {
		if agent, had := agents[task.Number]; had && agent != task.Decision.Step.Agent {
			return errStepChanged(task.Number, agent)
		}
	}
	if len(round) > 0 {
		return nil
	}
	for step, agent := range agents {
		if step > len(t.said.Results) {
			return errStepChanged(step, agent)
		}
	}
	return nil
}

func errStepChanged(step int, agent string) error {
	return failure.Newf(failure.Nondeterminism, "turn",
		"the workflow has changed since step %d was done by agent %s, and does not lead there any more; say again what you want", step, agent)
}

// checkAnsweredStep checks that the round still leads to the agent whose call was answered.
func (t *Turn) checkAnsweredStep(round []cursor.Task) error {
	answered := publish.AnsweredStep(t.begun.Turn)
	if len(t.said.Results) >= answered {
		return nil
	}
	asked := t.begun.Turn.Answers[0].Agent
	leads := len(round) > 0 // and the step is still to come
	for _, task := range round {
		if task.Number == answered {
			leads = !task.IsBranch() && (asked == "" || asked == task.Decision.Step.Agent)
		}
	}
	if leads || len(round) == 0 && asked == "" {
		return nil
	}
	return failure.Newf(failure.Nondeterminism, "turn",
		"the workflow has changed while a call of agent %s waited, and does not lead there any more; say again what you want", asked)
}
