package run

import (
	"context"
	"slices"

	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// state is the state of a running turn.
type state string

// The states. A turn begins opened and ends ended.
const (
	opened       state = "opened"       // its trace is open
	initializing state = "initializing" // publishes what was asked and what is planned
	resuming     state = "resuming"     // publishes that it has another owner
	beginning    state = "beginning"    // decides the first round of steps
	running      state = "running"      // has the steps of a round done, and decides the next round
	stopping     state = "stopping"     // has an answer, or a reason why there is none
	handingOver  state = "handing over" // leaves the turn to another orchestrator
	closing      state = "closing"      // closes the turn and its trace
	ended        state = "ended"
)

// stateSpec defines what a turn does in a state, and which states may follow.
type stateSpec struct {
	enter func(t *Turn, work, ctx context.Context) (state, error) // does the work, and returns the next state
	next  []state                                                 // states that may follow
}

// specs is the table of states. An error, or a panic, leads from every state in which the turn works to
// stopping; in the last three states enter returns none.
var specs = map[state]stateSpec{
	opened:       {enter: (*Turn).checkForEarlierOwner, next: []state{initializing, resuming, stopping}},
	initializing: {enter: (*Turn).initialize, next: []state{beginning, stopping}},
	resuming:     {enter: (*Turn).resume, next: []state{beginning, stopping}},
	beginning:    {enter: (*Turn).begin, next: []state{running, stopping}},
	running:      {enter: (*Turn).runRound, next: []state{running, stopping}},
	stopping:     {enter: (*Turn).stop, next: []state{handingOver, closing}},
	handingOver:  {enter: (*Turn).handOver, next: []state{closing, ended}},
	closing:      {enter: (*Turn).close, next: []state{ended}},
}

// isWorking reports whether a turn in this state still works on its answer.
func (s state) isWorking() bool { return slices.Contains(specs[s].next, stopping) }

// drive goes from state to state until the turn has ended. Events are stored under ctx, which outlives
// the work.
func (t *Turn) drive(work, ctx context.Context) {
	for at := opened; at != ended; {
		next, err := t.enter(work, ctx, at)
		if err == nil && !slices.Contains(specs[at].next, next) {
			err = failure.Newf(failure.AgentLogic, "turn", "the turn cannot go from %s to %s; this is a fault of the orchestrator", at, next)
		}
		switch {
		case err == nil:
			at = next
		case at.isWorking():
			t.err, at = err, stopping
		default:
			t.driver.Telemetry.Panics.Record(ctx, err)
			at = ended
		}
	}
}

func (t *Turn) enter(work, ctx context.Context, at state) (_ state, err error) {
	if at.isWorking() {
		defer panics.Recover("turn", &err)
	}
	return specs[at].enter(t, work, ctx)
}
