package replay

import (
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/wire"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// decide makes the decisions of the turn again, from the history with which it began and the
// results of its steps, by the workflow as it is now. It returns how many were the same up to the
// first that is not.
func (r *Replayer) decide(was *past, began []conversation.Message) (same int32, _ *troupev1.Difference) {
	flow, ok := r.Workflows.Find(was.record.GetTarget())
	if !ok {
		flow = workflow.Single(was.record.GetTarget())
	}
	left := decisions{all: was.decisions}
	course, err := routing.NewCourse(flow, began)
	for err == nil && len(course.Round()) > 0 {
		var results []execution.Result
		for _, task := range course.Round() {
			then, now := left.next(), task.Decision.Proto()
			if then == nil && !was.answered() {
				return same, nil // it was cut off
			}
			if !alike(then, now) {
				return same, elsewhere(task.Number, shown(then), shown(now))
			}
			same++
			if result := was.results[task.Number]; result != nil {
				results = append(results, wire.ResultFromProto(result))
			}
		}
		if len(results) < len(course.Round()) {
			return same, nil // it was cut off
		}
		err = course.Go(results)
	}
	switch {
	case err != nil && was.answered():
		return same, elsewhere(0, shown(left.next()), "the turn fails: "+err.Error())
	case err == nil && left.next() != nil:
		return same, elsewhere(0, shown(left.last), "the turn ends")
	default:
		return same, nil
	}
}

// answered reports whether the turn came to its own end.
func (p *past) answered() bool {
	o := p.record.GetResult().GetOutcome()
	return o != troupev1.TurnOutcome_TURN_OUTCOME_FAILED && o != troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED
}

// decisions are those of a trace, in order.
type decisions struct {
	all  []*troupev1.RoutingDecision
	last *troupev1.RoutingDecision
}

// next is the next decision; nil: there is none. One that an orchestrator told again, which took
// the turn over, is passed over.
func (d *decisions) next() *troupev1.RoutingDecision {
	for len(d.all) > 0 {
		next := d.all[0]
		d.all = d.all[1:]
		if d.last == nil || next.GetReason() != d.last.GetReason() || !alike(d.last, next) {
			d.last = next
			return next
		}
	}
	return nil
}

// alike reports whether two decisions are the same: who works next, and by what right.
func alike(a, b *troupev1.RoutingDecision) bool {
	return a.GetStep() == b.GetStep() && a.GetTarget() == b.GetTarget() && a.GetStrategy() == b.GetStrategy()
}

// shown is a decision for a person.
func shown(d *troupev1.RoutingDecision) string {
	if d == nil {
		return "the turn ends"
	}
	strategy := strings.ToLower(strings.TrimPrefix(d.GetStrategy().String(), "ROUTING_STRATEGY_"))
	return fmt.Sprintf("%s by agent %s (%s): %s", d.GetStep(), d.GetTarget(), strategy, d.GetReason())
}

func elsewhere(number int, was, now string) *troupev1.Difference {
	subject := "the end of the turn"
	if number > 0 {
		subject = fmt.Sprintf("the way to step %d", number)
	}
	return &troupev1.Difference{Kind: troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_ROUTE, Subject: subject, Recorded: was, Now: now}
}
