package replay

import (
	"errors"
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/cursor"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// replayDecisions makes the decisions of the turn again. Its input is the history with which the turn began, the
// results of its steps, and the current workflow. It returns how many decisions match the recorded ones, and the
// first difference.
func (r *Replayer) replayDecisions(was *recordedTurn, began []conversation.Message) (same int32, _ *troupev1.Difference) {
	flow, ok := r.Workflows.Find(was.record.GetTarget())
	if !ok {
		flow = workflow.SingleAgent(was.record.GetTarget())
	}
	position, err := cursor.New(flow, began, was.selector(flow))
	last := 0
	for err == nil && len(position.Round()) > 0 {
		var results []execution.Result
		for _, task := range position.Round() {
			then, now := was.decisionForStep(task), task.Decision.Proto()
			if last = task.Number; then == nil && (!was.endedNormally() || was.inheritsStep(last)) {
				return same, nil // the turn was cut off, or an earlier turn made the decision
			}
			if !isSameDecision(then, now) {
				return same, routingDifference(last, describeDecision(then), describeDecision(now))
			}
			same++
			if result := was.results[last]; result != nil {
				results = append(results, wire.ResultFromProto(result))
			}
		}
		if len(results) < len(position.Round()) {
			return same, nil // the turn was cut off
		}
		err = position.Advance(results)
	}
	return same, endDifference(was, was.decisions[last+1], err)
}

// endDifference returns how the end of the repeated turn differs from the recorded one (nil if it does not). next is the
// decision that the recorded turn made next (nil if it ended), and err is why the repeated turn ended (nil if it ran out
// of steps).
func endDifference(was *recordedTurn, next *troupev1.RoutingDecision, err error) *troupev1.Difference {
	switch {
	case errors.Is(err, errRoutingDiffers):
		return nil
	case err != nil && was.endedNormally():
		return routingDifference(0, describeDecision(next), "the turn fails: "+err.Error())
	case err == nil && next != nil:
		return routingDifference(0, describeDecision(next), "the turn ends")
	default:
		return nil
	}
}

// decisionForStep returns the recorded decision that led to a step (nil when the trace has none).
func (t *recordedTurn) decisionForStep(task cursor.Task) *troupev1.RoutingDecision {
	if recorded := task.Decision.Record; recorded != nil {
		return recorded
	}
	return t.decisions[task.Number]
}

// inheritsStep reports whether this trace inherited the step from the earlier turn that it continues.
func (t *recordedTurn) inheritsStep(number int) bool {
	for later := range t.decisions {
		if later > number {
			return true
		}
	}
	return false
}

var errRoutingDiffers = errors.New("the trace did not record the choice")

// selector returns a selector that repeats the recorded choices by strategy. These choices depended on the state
// of the mesh at that time. Their recorded input leads to the same choice in every replay (package choice).
func (t *recordedTurn) selector(flow *workflow.Workflow) cursor.Selector {
	return func(number, _ int, step workflow.Step) (routing.Decision, error) {
		recorded := t.choices[number]
		if recorded == nil {
			return routing.Decision{}, errRoutingDiffers
		}
		return routing.DecisionFromRecord(flow, step, recorded)
	}
}

// endedNormally reports whether the turn ended without failure or cancellation.
func (t *recordedTurn) endedNormally() bool {
	o := t.record.GetResult().GetOutcome()
	return o != troupev1.TurnOutcome_TURN_OUTCOME_FAILED && o != troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED
}

// isSameDecision reports whether two decisions have the same step, target and strategy.
func isSameDecision(a, b *troupev1.RoutingDecision) bool {
	return a.GetStep() == b.GetStep() && a.GetTarget() == b.GetTarget() && a.GetStrategy() == b.GetStrategy()
}

// describeDecision returns a readable description of a decision.
func describeDecision(d *troupev1.RoutingDecision) string {
	if d == nil {
		return "the turn ends"
	}
	strategy := strings.ToLower(strings.TrimPrefix(d.GetStrategy().String(), "ROUTING_STRATEGY_"))
	return fmt.Sprintf("%s by agent %s (%s): %s", d.GetStep(), d.GetTarget(), strategy, d.GetReason())
}

func routingDifference(number int, was, now string) *troupev1.Difference {
	subject := "the end of the turn"
	if number > 0 {
		subject = fmt.Sprintf("the route to step %d", number)
	}
	return &troupev1.Difference{Kind: troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_ROUTE, Subject: subject, Recorded: was, Now: now}
}
