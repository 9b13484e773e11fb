package agent

import (
	"context"
	"iter"
	"slices"

	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// A flow is an agent that runs other agents, its children, by a rule instead of a model. They
// are one turn of one session: children see what the user said and what those before them led
// to (Step.Prior), and share the state of the session. Their events are those of the flow,
// each with its author and its branch; there is one user_input and one turn_result, that of
// the flow, in which usage, iterations, tools and observations add up. What a child says
// stays in the turn; the session gets the answer of the flow.
//
// A request to stop, from outside or by a handler's Turn.Stop, stops the whole flow, and so
// does a child that asks the user: its question is the answer. Turn.End is for the agent
// whose handler calls it alone; those beside it go on (AD-8). An error of a child is that of
// the flow, unless the child degrades. The Timeout of the flow bounds all of it.
//
// A flow that lost its worker goes on where that was, as an agent alone does: nothing that
// the journal has runs again. So does one that ended because tool calls of its children wait.

// Sequence returns an agent that runs each of its children once, in order (AD-28). The answer
// is that of the last one. In a step that decides where to go the last child decides.
//
// Run and Agents of c are the flow's to fill in. Modes: those of New, agent_validation when
// there are no children.
func Sequence(c Config, children ...*Agent) (*Agent, error) {
	return flow(c, children, func(ctx context.Context, inv Invocation, yield func(event.Event, error) bool) {
		l := newLine(inv, yield)
		for i, child := range children {
			l.inv.Step.Routes, l.inv.Step.Plan = nil, nil
			if i == len(children)-1 {
				l.inv.Step.Routes, l.inv.Step.Plan = inv.Step.Routes, inv.Step.Plan
			}
			if !l.run(ctx, child) {
				return
			}
		}
	})
}

// Repeat returns an agent that runs its children as Sequence does, round after round, at most
// rounds times; 0 is no limit (AD-28). It ends at once behind a child that escalates: with
// hook.Turn.Escalate in a handler, hook.InTool(ctx).Escalate in a tool, or an event.Message
// of a Run of its own. The rounds above do not end with it. A child that is a flow itself
// passes on what its children escalate, but does not end by it.
//
// A child sees the last result of each of the others. Modes: as those of Sequence.
func Repeat(c Config, rounds int, children ...*Agent) (*Agent, error) {
	if rounds < 0 {
		return nil, c.invalid("rounds: use 0 for no limit, or more")
	}
	return flow(c, children, func(ctx context.Context, inv Invocation, yield func(event.Event, error) bool) {
		l := newLine(inv, yield)
		l.inv.Step.Routes, l.inv.Step.Plan = nil, nil
		l.rounds = true
		for n := 0; rounds == 0 || n < rounds; n++ {
			for _, child := range children {
				if !l.run(ctx, child) || l.last.Escalate {
					return
				}
			}
		}
	})
}

// flow returns the agent that run makes of children.
func flow(c Config, children []*Agent, run func(context.Context, Invocation, func(event.Event, error) bool)) (*Agent, error) {
	switch {
	case c.Run != nil || len(c.Agents) > 0:
		return nil, c.invalid("Run, Agents: a flow has its own; leave them out")
	case len(children) == 0:
		return nil, c.invalid("Agents: a flow needs one at least")
	}
	c.Agents = children
	c.Run = func(ctx context.Context, inv Invocation) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) { run(ctx, inv, yield) }
	}
	a, err := New(c)
	if err != nil {
		return nil, err
	}
	a.flow = true
	return a, nil
}

// line is children that run one after the other.
type line struct {
	inv    Invocation
	yield  func(event.Event, error) bool
	prior  int  // results that were there before
	rounds bool // a child that escalates is heard here
	last   event.TurnResult
}

func newLine(inv Invocation, yield func(event.Event, error) bool) *line {
	return &line{inv: inv, yield: yield, prior: len(inv.Step.Prior)}
}

// run runs a child, and reports whether the next may follow.
func (l *line) run(ctx context.Context, child *Agent) bool {
	switch {
	case ctx.Err() != nil:
		return l.yield(event.Event{}, ctx.Err()) && false
	case l.inv.stopped():
		return l.yield(event.Event{Payload: event.Answer{Text: "The turn was stopped.", Reason: event.Stopped}}, nil) && false
	}
	for e, err := range child.Run(ctx, l.inv) {
		if done, ok := e.Payload.(event.TurnResult); ok {
			l.last = done
			done.Escalate = done.Escalate && !l.rounds
			e.Payload = done
		}
		if !l.yield(e, err) || err != nil {
			return false
		}
	}
	l.note(l.last.Result)
	return !halts(l.last)
}

// note hands a result to the children that follow: the last one of each agent.
func (l *line) note(result execution.Result) {
	old := l.inv.Step.Prior[:l.prior]
	own := slices.DeleteFunc(slices.Clone(l.inv.Step.Prior[l.prior:]), func(r execution.Result) bool { return r.Agent == result.Agent })
	l.inv.Step.Prior = slices.Concat(old, own, []execution.Result{result})
}

// halts reports whether the flow ends with the result of a child.
func halts(done event.TurnResult) bool {
	return done.Result.InputRequired || done.Reason == event.Stopped && !done.Ended
}
