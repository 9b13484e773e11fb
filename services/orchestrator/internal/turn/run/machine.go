package run

import (
	"context"
	"slices"

	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// state is the state of a running turn.
type state string

// The states. A turn begins in state opened and ends in state ended.
const (
	opened       state = "opened"       // its trace is open
	initializing state = "initializing" // publishes the request and the plan
	resuming     state = "resuming"     // publishes that the turn has a new owner
	beginning    state = "beginning"    // decides the first round of steps
	running      state = "running"      // runs the steps of a round, and decides the next round
	stopping     state = "stopping"     // has an answer, or a reason why there is none
	handingOver  state = "handing over" // releases the turn for another orchestrator
	closing      state = "closing"      // closes the turn and its trace
	ended        state = "ended"
)

// stateSpec defines what a turn does in a state, and which states may follow.
type stateSpec struct {
	enter func(t *Turn, work, ctx context.Context) (state, error) // does the work, and returns the next state
	next  []state                                                 // states that may follow
}

// stateSpecs is the table of states. In a state in which the turn works, an error or a panic leads to stopping. In
// the last three states enter returns no error.
var stateSpecs = map[state]stateSpec{
	opened:       {enter: (*Turn).checkForEarlierOwner, next: []state{initializing, resuming, stopping}},
	initializing: {enter: (*Turn).initialize, next: []state{beginning, stopping}},
	resuming:     {enter: (*Turn).resumeAfterTakeover, next: []state{beginning, stopping}},
	beginning:    {enter: (*Turn).decideFirstRound, next: []state{running, stopping}},
	running:      {enter: (*Turn).runRound, next: []state{running, stopping}},
	stopping:     {enter: (*Turn).chooseEnding, next: []state{handingOver, closing}},
	handingOver:  {enter: (*Turn).handOver, next: []state{closing, ended}},
	closing:      {enter: (*Turn).closeTurn, next: []state{ended}},
}

// isWorking reports whether a turn in this state still works on its answer.
func (s state) isWorking() bool { return slices.Contains(stateSpecs[s].next, stopping) }

// drive moves the turn from state to state until it has ended. ctx outlives work, and events are stored under ctx.
func (t *Turn) drive(work, ctx context.Context) {
	for at := opened; at != ended; {
		next, err := t.enter(work, ctx, at)
		if err == nil && !slices.Contains(stateSpecs[at].next, next) {
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

// enter runs the phase of state at and returns the state that follows. workCtx ends when the turn is stopped. ctx outlives
// it, as in drive. While the turn still works on its answer, a panic becomes the error.
func (t *Turn) enter(workCtx, ctx context.Context, at state) (_ state, err error) {
	if at.isWorking() {
		defer panics.Recover("turn", &err)
	}
	return stateSpecs[at].enter(t, workCtx, ctx)
}
