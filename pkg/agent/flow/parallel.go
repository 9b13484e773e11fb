package flow

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/internal/scope"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// Parallel returns an agent that runs its children concurrently, each in a branch of its own (AD-28). No child sees what
// another one changes or says. When all have ended, their changes of state are merged in the order of the children: if two
// changed a key, the later child decides. The answer has the name and the answer of each child, in this order.
//
// Events of the children come as they happen, and a child continues only after its event was taken. When a child fails, or
// the reader of the events stops, the other children are cancelled. When a child stops or asks the user, the others are
// asked to stop. When tool calls of a child wait, the others run to their end, and the flow waits for all of these calls. A
// stop takes precedence: then no call waits. In each case all children have ended when the run ends.
//
// Run and Agents of c must be empty. Modes: as for Sequence.
func Parallel(c agent.Config, children ...*agent.Agent) (*agent.Agent, error) {
	return newFlow(c, children, func(ctx context.Context, inv agent.Invocation, yield func(event.Event, error) bool) {
		p := &parallelRun{
			inv: inv, scope: scope.RunFromContext(ctx).Scope, children: children, yield: yield, events: make(chan childEvent),
			readerStopped: make(chan struct{}),
		}
		p.run(ctx)
	})
}

// errReaderStopped reports that the reader of the events has stopped.
var errReaderStopped = errors.New("the reader of the events has stopped")

// parallelRun runs children concurrently and merges their events.
type parallelRun struct {
	inv      agent.Invocation
	scope    scope.Scope // each child runs in a fork of it
	children []*agent.Agent
	yield    func(event.Event, error) bool

	events        chan childEvent
	readerStopped chan struct{} // closed when the reader has stopped
}

// childEvent is an event or an error of a child. The child waits until the event was taken.
type childEvent struct {
	child int
	event event.Event
	err   error
	taken chan<- struct{}
}

// run runs all children. It returns after the last one has ended, even if the reader panics.
func (p *parallelRun) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	signal := p.inv.Stop
	if signal == nil {
		signal = context.Background()
	}
	stop, stopAll := context.WithCancel(signal)
	defer stopAll()
	var working, closing sync.WaitGroup
	defer func() {
		cancel()
		close(p.readerStopped)
		for range p.events { // the remaining ones have no reader
		}
		closing.Wait()
	}()
	branches := make([]scope.Scope, len(p.children))
	for i, child := range p.children {
		branches[i] = p.scope.Fork(child.Name(), i, len(p.children))
	}
	inv := p.inv
	inv.Stop, inv.Step.Routes, inv.Step.Plan = stop, nil, nil
	for i, branch := range branches {
		working.Go(func() { p.runChild(scope.ContextWithScope(ctx, branch), i, inv) })
	}
	closing.Go(func() { working.Wait(); close(p.events) })

	results, err := p.emitEvents(cancel, stopAll)
	if errors.Is(err, errReaderStopped) {
		return
	}
	p.scope.JoinCalls(branches)
	for i, done := range results { // in the order of the children
		if done.Result.Agent != "" && !p.yield(event.Event{Author: p.children[i].Name(), Payload: done}, nil) {
			return
		}
	}
	if err != nil {
		p.yield(event.Event{}, err)
		return
	}
	for _, branch := range branches {
		p.scope.Memory.Join(branch.Memory)
	}
	p.emitAnswer(results)
}

// runChild runs one child and sends its events to the reader.
func (p *parallelRun) runChild(ctx context.Context, child int, inv agent.Invocation) {
	taken := make(chan struct{})
	for e, err := range p.children[child].Run(ctx, inv) {
		select {
		case p.events <- childEvent{child, e, err, taken}:
		case <-p.readerStopped:
			return
		}
		select {
		case <-taken:
		case <-p.readerStopped:
			return
		}
	}
}

// emitEvents emits the events of the children until all have ended, and returns their results and the first error. After
// an error it emits no event.
func (p *parallelRun) emitEvents(cancel, stopAll func()) ([]event.TurnResult, error) {
	results := make([]event.TurnResult, len(p.children))
	var failed error
	for m := range p.events {
		done, ended := m.event.Payload.(event.TurnResult)
		if m.err != nil && failed == nil {
			failed = m.err
			cancel()
		}
		if ended {
			results[m.child] = done
			if done.Reason == event.Stopped && !done.Ended {
				stopAll()
			}
		} else if failed == nil && !p.yield(m.event, nil) {
			return nil, errReaderStopped
		}
		m.taken <- struct{}{}
	}
	return results, failed
}

// emitAnswer emits one answer that joins the answers of all children.
func (p *parallelRun) emitAnswer(results []event.TurnResult) {
	var texts []string
	var waiting []execution.Pending
	var incomplete event.Finish
	reasons := map[event.Reason]bool{}
	for i, done := range results {
		if calls := done.Result.Pending; len(calls) > 0 {
			waiting = append(waiting, calls...)
			continue
		}
		if done.Result.Text != "" {
			texts = append(texts, p.children[i].Name()+":\n"+done.Result.Text)
		}
		incomplete = cmp.Or(incomplete, event.Finish(done.Result.Incomplete))
		if done.Result.InputRequired {
			done.Reason = event.InputRequired
		}
		reasons[done.Reason] = reasons[done.Reason] || !done.Ended
	}
	if len(waiting) > 0 && !reasons[event.Stopped] {
		p.yield(event.Event{Payload: event.Answer{Text: pendingcall.Summary(waiting), Reason: event.InputRequired, Pending: waiting}}, nil)
		return
	}
	reason := event.Natural
	for _, r := range []event.Reason{event.InputRequired, event.Stopped, event.MaxIterations} {
		if reasons[r] {
			reason = r
			break
		}
	}
	p.yield(event.Event{Payload: event.Answer{Text: strings.Join(texts, "\n\n"), Reason: reason, Incomplete: incomplete}}, nil)
}
