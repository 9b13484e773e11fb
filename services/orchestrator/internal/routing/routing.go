// Package routing decides who works next. It is the only place that does (contract OC-13):
// agents ask, workflows allow. A decision is a pure function of its input, so that the
// same input gives the same decision, and every decision has a reason.
package routing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Op is the operation of errors that say why there is no next step (OC-6).
const Op = "routing"

// Decision says which step comes next, and why. Step is empty when the turn is over.
type Decision struct {
	Step         workflow.Step
	Reason       string // one sentence for a person
	Strategy     troupev1.RoutingStrategy
	Alternatives []string // agents that were allowed too
	Confidence   float64
	Fallback     string        // the agent that would have come for want of a choice; empty: none, or it is the target
	Took         time.Duration // to decide. A course leaves it to its caller, for it has no clock.
	// Choice is which one of the choices of the turn it is, from 1; 0 when nothing was chosen by
	// strategy. Then the decision is a function of the workflow and the results alone.
	Choice int
	// Told is such a choice as it is recorded.
	Told *troupev1.RoutingDecision
}

// Done reports whether the turn is over.
func (d Decision) Done() bool { return d.Step.Name == "" }

// Proto is the decision as clients see it.
func (d Decision) Proto() *troupev1.RoutingDecision {
	if d.Told != nil {
		return d.Told
	}
	return &troupev1.RoutingDecision{
		Target: d.Step.Agent, Step: d.Step.Name, Reason: d.Reason, Strategy: d.Strategy,
		Alternatives: d.Alternatives, Confidence: d.Confidence, Fallback: d.Fallback, Type: d.kind(), Duration: durationpb.New(d.Took),
	}
}

// kind is what the decision is about: a default stands in for what an agent should have chosen.
func (d Decision) kind() troupev1.DecisionType {
	if d.Strategy == troupev1.RoutingStrategy_ROUTING_STRATEGY_DEFAULT {
		return troupev1.DecisionType_DECISION_TYPE_FALLBACK
	}
	return troupev1.DecisionType_DECISION_TYPE_AGENT_SELECTION
}

// How sure a choice is: the workflow and its rules are certain; a model's is not.
const (
	certain = 1.0
	learned = 0.8
	guessed = 0.5
)

// first is the decision with which a turn begins.
func first(w *workflow.Workflow) Decision {
	step := w.Steps[w.Entry]
	if w.Name == "" {
		return fixed(step, fmt.Sprintf("the call names the agent %s", step.Agent))
	}
	return fixed(step, fmt.Sprintf("the workflow %s begins with %s", w.Name, step.Name))
}

// next says who works behind a step; nobody behind an end and a fork. It fails with the step's own failure when that ends the
// turn, and with agent_contract when the step asks for an agent that the workflow does not
// allow (RA-7).
func next(w *workflow.Workflow, from workflow.Step, result execution.Result) (Decision, error) {
	failed := result.Failure
	switch {
	case failed == nil && (result.InputRequired || result.Stopped):
		return Decision{}, unended(from)
	case failed == nil && len(result.Tasks) > 0:
		return planned(w, from, result.Tasks)
	case failed != nil && from.OnError.Fallback != "" && !refusal(failed):
		return Decision{
			Step:     w.Steps[from.OnError.Fallback],
			Reason:   fmt.Sprintf("%s failed (%s); %s is its fallback", from.Name, mode(failed), from.OnError.Fallback),
			Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_DEFAULT, Confidence: guessed,
		}, nil
	case failed != nil && from.OnError.Continue && failed.Mode != failure.UserCancelled: // and on as if it had not
	case failed != nil && (len(from.Routes) == 0 || refusal(failed)):
		return Decision{}, failed
	}
	if len(from.Routes) > 0 {
		return choose(w, from, result)
	}
	for i, edge := range from.Then {
		if edge.When.Holds(result) {
			return Decision{
				Step:     w.Steps[edge.Next],
				Reason:   fmt.Sprintf("the result of %s meets condition %d: %s", from.Name, i+1, edge.When),
				Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_RULE, Confidence: certain,
			}, nil
		}
	}
	if from.End || len(from.Parallel) > 0 {
		return Decision{}, nil
	}
	return fixed(w.Steps[from.Next], fmt.Sprintf("%s always follows %s", from.Next, from.Name)), nil
}

// unended refuses to end the turn in a branch, whose siblings have not ended.
func unended(from workflow.Step) error {
	if from.Fork == "" {
		return nil
	}
	return failure.Newf(failure.AgentContract, Op,
		"agent %s would end the turn in a branch of %s; only a step outside of branches may ask the user, wait or stop", from.Agent, from.Fork)
}

// passed is the step that comes in the place of one because a rule knows the answer: nobody is
// asked (RA-8, RA-10).
func passed(w *workflow.Workflow, step workflow.Step, history []conversation.Message) (Decision, bool) {
	rule, ok := matching(step, history)
	return Decision{
		Step:     w.Steps[rule.Next],
		Reason:   fmt.Sprintf("%s, so %s is not asked", rule, cmp.Or(step.Agent, step.Name)),
		Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_RULE, Confidence: certain,
		Alternatives: others(w, step.Routes, rule.Next),
	}, ok
}

// spent is the step that comes in the place of one to which the turn has come as often as it
// may.
func spent(w *workflow.Workflow, step workflow.Step, times int) (Decision, bool) {
	return Decision{
		Step:     w.Steps[step.Otherwise],
		Reason:   fmt.Sprintf("the turn came to %s %d times, which is its limit", step.Name, times),
		Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_RULE, Confidence: certain,
	}, step.Limit > 0 && times >= step.Limit
}

// refusal reports whether a step did not fail but was refused: by a policy, or by who asked. A
// default is for a step that could not choose, and not a way around one that may not.
func refusal(f *failure.Error) bool {
	return failure.Is(f, failure.PolicySecurity, failure.PolicyBudget, failure.PolicyAllowlist, failure.PolicyRateLimit,
		failure.UserPermission, failure.UserUnauthenticated, failure.UserInvalidInput, failure.UserCancelled)
}

// choose follows what the agent of a routing step asked for.
func choose(w *workflow.Workflow, from workflow.Step, result execution.Result) (Decision, error) {
	asked := result.NextAgent
	if asked != "" {
		for _, name := range from.Routes {
			if w.Steps[name].Agent == asked {
				return Decision{
					Step:     w.Steps[name],
					Reason:   fmt.Sprintf("%s chose %s", from.Agent, asked),
					Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_LEARNED, Confidence: learned,
					Alternatives: others(w, from.Routes, name), Fallback: standIn(w, from, name),
				}, nil
			}
		}
		return Decision{}, failure.Newf(failure.AgentContract, Op,
			"agent %s asks to hand on to %q; the workflow allows %s", from.Agent, asked, strings.Join(others(w, from.Routes, ""), ", "))
	}
	why := fmt.Sprintf("%s named none of its routes", from.Agent)
	if result.Failure != nil {
		why = fmt.Sprintf("%s failed (%s)", from.Agent, mode(result.Failure))
	}
	if from.Default == "" {
		if result.Failure != nil {
			return Decision{}, result.Failure
		}
		return Decision{}, failure.Newf(failure.AgentContract, Op, "%s, and step %s has no default", why, from.Name)
	}
	return Decision{
		Step:     w.Steps[from.Default],
		Reason:   why + "; " + from.Default + " is the default",
		Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_DEFAULT, Confidence: guessed,
		Alternatives: others(w, from.Routes, from.Default),
	}, nil
}

func fixed(step workflow.Step, reason string) Decision {
	return Decision{Step: step, Reason: reason, Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_FIXED, Confidence: certain}
}

func matching(step workflow.Step, history []conversation.Message) (workflow.Rule, bool) {
	i := slices.IndexFunc(step.Rules, func(r workflow.Rule) bool { return r.Matches(history) })
	if i < 0 {
		return workflow.Rule{}, false
	}
	return step.Rules[i], true
}

func mode(f *failure.Error) string { return cmp.Or(string(f.Mode), "unknown") }

// others are the agents of the routes but for the chosen one.
func others(w *workflow.Workflow, routes []string, chosen string) []string {
	var all []string
	for _, name := range routes {
		if name != chosen {
			all = append(all, w.Steps[name].Agent)
		}
	}
	return all
}

// standIn is the agent of a step's default, unless that was chosen.
func standIn(w *workflow.Workflow, from workflow.Step, chosen string) string {
	agent := w.Steps[from.Default].Agent
	if agent == w.Steps[chosen].Agent {
		return ""
	}
	return agent
}
