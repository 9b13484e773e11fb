// Package flow makes agents of agents.
//
// A flow is an agent that runs other agents, its children, by a rule instead of a model. All of it is one turn of one
// session. Children see what the user said and the results of the children before them (Step.Prior), and share the state
// of the session. Their events are events of the flow, each with its author and its branch. There is one user_input and
// one turn_result, the flow's. Usage, iterations, tools and observations of the children add up in it. What a child says
// stays in the turn; the session gets the answer of the flow.
//
// A request to stop, from outside or by a handler's Turn.Stop, stops the whole flow. So does a child that asks the user:
// its question is the answer of the flow. Turn.End ends only the agent whose handler calls it (AD-8). An error of a child
// is an error of the flow, unless the child degrades. The Timeout of the flow bounds all of it.
//
// A flow that lost its worker continues where it was, as a single agent does: nothing that the journal has runs again. The
// same is true for a flow that ended because tool calls of its children wait.
package flow

import (
	"context"
	"iter"
	"slices"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Sequence returns an agent that runs each of its children once, in order (AD-28). Its answer is the answer of the last
// child. In a step that chooses a route the last child chooses.
//
// Run and Agents of c must be empty. Modes: as for agent.New, and agent_validation when there are no children.
func Sequence(c agent.Config, children ...*agent.Agent) (*agent.Agent, error) {
	return newFlow(c, children, func(ctx context.Context, inv agent.Invocation, yield func(event.Event, error) bool) {
		s := newChildSequence(inv, yield)
		for i, child := range children {
			s.inv.Step.Routes, s.inv.Step.Plan = nil, nil
			if i == len(children)-1 {
				s.inv.Step.Routes, s.inv.Step.Plan = inv.Step.Routes, inv.Step.Plan
			}
			if !s.run(ctx, child) {
				return
			}
		}
	})
}

// Repeat returns an agent that runs its children like Sequence, round after round, at most rounds times (0 means no
// limit, AD-28). It ends as soon as a child that escalates has finished. A child escalates with hook.Turn.Escalate in a
// handler, with hook.InTool(ctx).Escalate in a tool, or with an event.Message of a Run of its own. That ends only the
// innermost Repeat. A child that is a Sequence or a Parallel passes on what its children escalate, but does not end by it.
//
// A child sees the last result of each of the others. Modes: as for Sequence.
func Repeat(c agent.Config, rounds int, children ...*agent.Agent) (*agent.Agent, error) {
	if rounds < 0 {
		return nil, failure.Newf(failure.AgentValidation, "flow.Repeat", "agent %q is not valid: rounds: use 0 for no limit, or more", c.Name)
	}
	return newFlow(c, children, func(ctx context.Context, inv agent.Invocation, yield func(event.Event, error) bool) {
		s := newChildSequence(inv, yield)
		s.inv.Step.Routes, s.inv.Step.Plan = nil, nil
		s.endsEscalation = true
		for n := 0; rounds == 0 || n < rounds; n++ {
			for _, child := range children {
				if !s.run(ctx, child) || s.lastResult.Escalate {
					return
				}
			}
		}
	})
}

// newFlow returns a flow that runs its children with run.
func newFlow(
	c agent.Config, children []*agent.Agent, run func(context.Context, agent.Invocation, func(event.Event, error) bool),
) (*agent.Agent, error) {
	return agent.NewFlow(c, children, func(ctx context.Context, inv agent.Invocation) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) { run(ctx, inv, yield) }
	})
}

// childSequence runs children one after the other and passes results on from each child to the next.
type childSequence struct {
	inv            agent.Invocation
	yield          func(event.Event, error) bool
	priorCount     int              // number of results from steps before the flow
	endsEscalation bool             // the flow consumes an escalation (Repeat) instead of passing it on
	lastResult     event.TurnResult // result of the previous child
}

func newChildSequence(inv agent.Invocation, yield func(event.Event, error) bool) *childSequence {
	return &childSequence{inv: inv, yield: yield, priorCount: len(inv.Step.Prior)}
}

// run runs a child and reports whether the next one may run.
func (s *childSequence) run(ctx context.Context, child *agent.Agent) bool {
	switch {
	case ctx.Err() != nil:
		return s.yield(event.Event{}, ctx.Err()) && false
	case s.inv.Stop != nil && s.inv.Stop.Err() != nil:
		return s.yield(event.Event{Payload: event.Answer{Text: "The turn was stopped.", Reason: event.Stopped}}, nil) && false
	}
	for e, err := range child.Run(ctx, s.inv) {
		if done, ok := e.Payload.(event.TurnResult); ok {
			s.lastResult = done
			done.Escalate = done.Escalate && !s.endsEscalation
			e.Payload = done
		}
		if !s.yield(e, err) || err != nil {
			return false
		}
	}
	s.addPrior(s.lastResult.Result)
	return !endsFlow(s.lastResult)
}

// addPrior adds a result to the results that later children get. It replaces an earlier result of the same agent.
func (s *childSequence) addPrior(result execution.Result) {
	before := s.inv.Step.Prior[:s.priorCount]
	own := slices.DeleteFunc(slices.Clone(s.inv.Step.Prior[s.priorCount:]), func(r execution.Result) bool { return r.Agent == result.Agent })
	s.inv.Step.Prior = slices.Concat(before, own, []execution.Result{result})
}

// endsFlow reports whether the result of a child ends the flow: a question to the user, or a stop.
func endsFlow(done event.TurnResult) bool {
	return done.Result.InputRequired || done.Reason == event.Stopped && !done.Ended
}
