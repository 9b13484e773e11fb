package progress

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// maxTaskChars is the maximum length, in characters, of a task as shown to clients. The routing decision of the step
// has the same limit.
const maxTaskChars = 200

// StepsFromEvents returns the planned steps of a turn as its events describe them: the numbered steps in order,
// then the steps without a number. A fork that runs no agent is not a step. A step that starts again keeps the
// times of its first start.
func StepsFromEvents(events []*troupev1.Event) []*Step {
	p := &plan{byNumber: map[int]*Step{}}
	for _, e := range events {
		p.add(e, e.GetTime().AsTime())
	}
	slices.SortStableFunc(p.steps, func(a, b *Step) int {
		if (a.Number == 0) != (b.Number == 0) {
			return cmp.Compare(b.Number, a.Number)
		}
		return cmp.Compare(a.Number, b.Number)
	})
	return p.steps
}

// plan collects the steps from the events of a turn.
type plan struct {
	steps    []*Step
	byNumber map[int]*Step
}

func (p *plan) add(e *troupev1.Event, at time.Time) {
	switch {
	case e.GetPlan() != nil:
		for i, name := range e.GetPlan().GetSteps() {
			if agents := e.GetPlan().GetAgents(); i < len(agents) && agents[i] != "" { // otherwise the step is a fork, or the trace is older than this field
				p.addCreatedStep(name, at).Agent = agents[i]
			}
		}
		for _, done := range e.GetPlan().GetInherited() {
			p.addInheritedStep(done, at)
		}
	case e.GetRoutingDecision() != nil:
		p.applyDecision(e.GetRoutingDecision(), at)
	case e.GetTurnResult() != nil:
		for _, s := range p.steps {
			p.advanceStep(s, Cancelled, at)
		}
	case e.GetStep() > 0 && e.GetStage() == troupev1.Stage_STAGE_EXECUTE:
		p.applyExecution(e, at)
	}
}

// addInheritedStep marks the step that an earlier turn completed: the first unnumbered step of the agent. Steps
// that a planner created are not in the plan, so the function adds such a step under the name of its agent.
func (p *plan) addInheritedStep(done *troupev1.InheritedStep, at time.Time) {
	i := slices.IndexFunc(p.steps, func(s *Step) bool { return s.Agent == done.GetAgent() && s.Number == 0 })
	if i < 0 {
		p.addCreatedStep(done.GetAgent(), at).Agent = done.GetAgent()
		i = len(p.steps) - 1
	}
	s := p.steps[i]
	s.Number = int(done.GetNumber())
	p.byNumber[s.Number] = s
	ended := Completed
	if done.GetFailed() {
		ended = Failed
	}
	for _, next := range []Stage{Routed, Executing, ended} {
		p.advanceStep(s, next, at)
	}
}

func (p *plan) addCreatedStep(name string, at time.Time) *Step {
	s := &Step{Name: name}
	p.advanceStep(s, Created, at)
	p.steps = append(p.steps, s)
	return s
}

// advanceStep moves a step to its next stage if the transition is allowed. A repeated event, such as one after a
// takeover, changes nothing.
func (*plan) advanceStep(s *Step, next Stage, at time.Time) {
	_ = s.Advance(next, at)
}

// applyDecision assigns the number of a routing decision to the planned step of this name. If the turn repeats the
// step, it adds a new one.
func (p *plan) applyDecision(d *troupev1.RoutingDecision, at time.Time) {
	number := int(d.GetNumber())
	if number == 0 || p.byNumber[number] != nil {
		return // the trace is older than the field, or the event is repeated
	}
	i := slices.IndexFunc(p.steps, func(s *Step) bool { return s.Name == d.GetStep() && s.Number == 0 })
	if i < 0 {
		p.addCreatedStep(d.GetStep(), at)
		i = len(p.steps) - 1
	}
	s := p.steps[i]
	s.Number, s.Agent, s.Task = number, d.GetTarget(), d.GetTask()
	p.byNumber[number] = s
	p.advanceStep(s, Routed, at)
}

// applyExecution handles an event of a routed step. The first such event moves the step to Executing.
func (p *plan) applyExecution(e *troupev1.Event, at time.Time) {
	s := p.byNumber[int(e.GetStep())]
	if s == nil || s.IsEnded() {
		return
	}
	p.advanceStep(s, Executing, at)
	if e.GetStepFinished() == nil {
		return
	}
	result := e.GetStepFinished().GetResult()
	switch why := grpcfailure.FromProto(result.GetFailure()); {
	case why == nil:
		p.advanceStep(s, Completed, at)
	case why.Mode == failure.UserCancelled:
		p.advanceStep(s, Cancelled, at)
	default:
		p.advanceStep(s, Failed, at)
	}
	for i, task := range result.GetTasks() {
		made := p.addCreatedStep(fmt.Sprintf("%s[%d]", s.Name, i+1), at)
		made.Agent, made.Task = task.GetAgent(), conversation.Excerpt(task.GetText(), maxTaskChars)
	}
}
