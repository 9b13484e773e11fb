package agent

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// Parallel returns an agent that runs its children beside each other, each in a branch of its
// own (AD-28): none sees what the others change or say. Changes of state are put together
// when all have ended, in the order of the children: of a key that two changed the later one
// decides. The answer has the name and the answer of each, in this order.
//
// Events of the children come as they happen, and a child goes on only when its event was
// taken. When one fails, or nobody reads any more, the others are cancelled; when one stops
// or asks the user, the others are asked to stop or go on to their end; so they do when tool
// calls of it wait, and what waits in all of them is the flow's. A stop is stronger: then nothing
// waits. Whatever happens, all have ended when the run ends.
//
// Run and Agents of c are the flow's to fill in. Modes: as those of Sequence.
func Parallel(c Config, children ...*Agent) (*Agent, error) {
	return flow(c, children, func(ctx context.Context, inv Invocation, yield func(event.Event, error) bool) {
		(&branches{inv: inv, children: children, yield: yield}).run(ctx)
	})
}

// branches are children that run beside each other.
type branches struct {
	inv      Invocation
	children []*Agent
	yield    func(event.Event, error) bool

	told chan told
	left chan struct{} // closed when nobody reads any more
}

// told is an event of a child, or its error, and who waits until it was taken.
type told struct {
	child int
	event event.Event
	err   error
	taken chan<- struct{}
}

// run runs all children, and returns when the last has ended, also when the reader panics.
func (b *branches) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	signal := b.inv.Stop
	if signal == nil {
		signal = context.Background()
	}
	stop, stopAll := context.WithCancel(signal)
	defer stopAll()
	b.told, b.left = make(chan told), make(chan struct{})
	var working, closing sync.WaitGroup
	defer func() {
		cancel()
		close(b.left)
		for range b.told { // what is left is nobody's
		}
		closing.Wait()
	}()
	invs := make([]Invocation, len(b.children))
	for i, child := range b.children {
		inv := b.inv
		inv.Stop, inv.Step.Routes, inv.Step.Plan = stop, nil, nil
		inv.memory, inv.count = b.inv.memory.Fork(child.Name()), b.inv.count.split(i, len(b.children))
		invs[i] = inv
	}
	for i, inv := range invs {
		working.Go(func() { b.tell(ctx, i, inv) })
	}
	closing.Go(func() { working.Wait(); close(b.told) })

	results, err := b.hear(cancel, stopAll)
	if errors.Is(err, errDeaf) {
		return
	}
	for _, inv := range invs {
		inv.count.join()
	}
	b.inv.count.settle()
	for i, done := range results { // in the order of the children, whoever was first
		if done.Result.Agent != "" && !b.yield(event.Event{Author: b.children[i].Name(), Payload: done}, nil) {
			return
		}
	}
	if err != nil {
		b.yield(event.Event{}, err)
		return
	}
	b.join(invs, results)
}

// tell hands on the events of a child.
func (b *branches) tell(ctx context.Context, child int, inv Invocation) {
	taken := make(chan struct{})
	for e, err := range b.children[child].Run(ctx, inv) {
		select {
		case b.told <- told{child, e, err, taken}:
		case <-b.left:
			return
		}
		select {
		case <-taken:
		case <-b.left:
			return
		}
	}
}

// hear passes on what the children tell until all have ended, and returns their results and
// the first error. Behind that nothing is passed on.
func (b *branches) hear(cancel, stopAll func()) ([]event.TurnResult, error) {
	results := make([]event.TurnResult, len(b.children))
	var failed error
	for t := range b.told {
		done, ended := t.event.Payload.(event.TurnResult)
		if t.err != nil && failed == nil {
			failed = t.err
			cancel()
		}
		if ended {
			results[t.child] = done
			if done.Reason == event.Stopped && !done.Ended {
				stopAll()
			}
		} else if failed == nil && !b.yield(t.event, nil) {
			return nil, errDeaf
		}
		t.taken <- struct{}{}
	}
	return results, failed
}

// join makes one answer of all.
func (b *branches) join(invs []Invocation, results []event.TurnResult) {
	var texts []string
	var waiting []execution.Pending
	reasons := map[event.Reason]bool{}
	for i, done := range results {
		b.inv.memory.Join(invs[i].memory)
		if calls := done.Result.Pending; len(calls) > 0 {
			waiting = append(waiting, calls...)
			continue
		}
		if done.Result.Text != "" {
			texts = append(texts, b.children[i].Name()+":\n"+done.Result.Text)
		}
		if done.Result.InputRequired {
			done.Reason = event.InputRequired
		}
		reasons[done.Reason] = reasons[done.Reason] || !done.Ended
	}
	if len(waiting) > 0 && !reasons[event.Stopped] {
		b.yield(event.Event{Payload: event.Answer{Text: loop.Waiting(waiting), Reason: event.InputRequired, Pending: waiting}}, nil)
		return
	}
	reason := event.Natural
	for _, r := range []event.Reason{event.InputRequired, event.Stopped, event.MaxIterations} {
		if reasons[r] {
			reason = r
			break
		}
	}
	b.yield(event.Event{Payload: event.Answer{Text: strings.Join(texts, "\n\n"), Reason: reason}}, nil)
}
