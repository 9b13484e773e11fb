// Package routing decides who works next. It is the only place that does (contract OC-13):
// agents ask, workflows allow. A decision is a pure function of its input, so that the
// same input gives the same decision, and every decision has a reason.
package routing

import (
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

// Input is all that a decision depends on.
type Input struct {
	Workflow *workflow.Workflow
	From     string                 // the step that ended; empty at the start of the turn
	Result   execution.Result       // of that step
	History  []conversation.Message // as the turn began, its own message last
}

// Decision says which step comes next, and why. Step is empty when the turn is over.
type Decision struct {
	Step         workflow.Step
	Reason       string // one sentence for a person
	Strategy     troupev1.RoutingStrategy
	Alternatives []string // agents that were allowed too
	Confidence   float64
	Fallback     string        // the agent that would have come for want of a choice; empty: none, or it is the target
	Took         time.Duration // to decide. Decide leaves it to its caller, for it has no clock.
}

// Done reports whether the turn is over.
func (d Decision) Done() bool { return d.Step.Name == "" }

// Proto is the decision as clients see it.
func (d Decision) Proto() *troupev1.RoutingDecision {
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

// Decide says who works next. It fails with the step's own failure when that ends the
// turn, and with agent_contract when the step asks for an agent that the workflow does not
// allow (RA-7).
func Decide(in Input) (Decision, error) {
	d, err := decide(in)
	if err != nil || d.Done() {
		return d, err
	}
	// A step whose rules know the answer is passed over: nobody is asked (RA-8, RA-10).
	if rule, ok := matching(d.Step, in.History); ok {
		passed := d.Step
		d = Decision{
			Step:     in.Workflow.Steps[rule.Next],
			Reason:   fmt.Sprintf("%s, so %s is not asked", describe(rule), passed.Agent),
			Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_RULE, Confidence: certain,
			Alternatives: others(in.Workflow, passed.Routes, rule.Next),
		}
	}
	return d, nil
}

func decide(in Input) (Decision, error) {
	if in.From == "" {
		step := in.Workflow.Steps[in.Workflow.Entry]
		reason := fmt.Sprintf("the workflow %s begins with %s", in.Workflow.Name, step.Name)
		if in.Workflow.Name == "" {
			reason = fmt.Sprintf("the call names the agent %s", step.Agent)
		}
		return fixed(step, reason), nil
	}
	from := in.Workflow.Steps[in.From]
	switch {
	case in.Result.Failure == nil && (in.Result.InputRequired || in.Result.Stopped):
		return Decision{}, nil
	case in.Result.Failure != nil && (len(from.Routes) == 0 || refusal(in.Result.Failure)):
		return Decision{}, in.Result.Failure
	case len(from.Routes) > 0:
		return choose(in, from)
	case from.End:
		return Decision{}, nil
	default:
		return fixed(in.Workflow.Steps[from.Next], fmt.Sprintf("%s always follows %s", from.Next, from.Name)), nil
	}
}

// refusal reports whether a step did not fail but was refused: by a policy, or by who asked. A
// default is for a step that could not choose, and not a way around one that may not.
func refusal(f *failure.Error) bool {
	return failure.Is(f, failure.PolicySecurity, failure.PolicyBudget, failure.PolicyAllowlist, failure.PolicyRateLimit,
		failure.UserPermission, failure.UserInvalidInput, failure.UserCancelled)
}

// choose follows what the agent of a routing step asked for.
func choose(in Input, from workflow.Step) (Decision, error) {
	asked := in.Result.NextAgent
	if asked != "" {
		for _, name := range from.Routes {
			if in.Workflow.Steps[name].Agent == asked {
				return Decision{
					Step:     in.Workflow.Steps[name],
					Reason:   fmt.Sprintf("%s chose %s", from.Agent, asked),
					Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_LEARNED, Confidence: learned,
					Alternatives: others(in.Workflow, from.Routes, name), Fallback: standIn(in.Workflow, from, name),
				}, nil
			}
		}
		return Decision{}, failure.Newf(failure.AgentContract, "routing.Decide",
			"agent %s asks to hand on to %q; the workflow allows %s", from.Agent, asked, strings.Join(others(in.Workflow, from.Routes, ""), ", "))
	}
	why := fmt.Sprintf("%s named none of its routes", from.Agent)
	if in.Result.Failure != nil {
		why = fmt.Sprintf("%s failed (%s)", from.Agent, in.Result.Failure.Mode)
	}
	if from.Default == "" {
		if in.Result.Failure != nil {
			return Decision{}, in.Result.Failure
		}
		return Decision{}, failure.Newf(failure.AgentContract, "routing.Decide", "%s, and step %s has no default", why, from.Name)
	}
	return Decision{
		Step:     in.Workflow.Steps[from.Default],
		Reason:   why + "; " + from.Default + " is the default",
		Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_DEFAULT, Confidence: guessed,
		Alternatives: others(in.Workflow, from.Routes, from.Default),
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

func describe(r workflow.Rule) string {
	var parts []string
	if r.ReplyTo != "" {
		parts = append(parts, "the user answers "+r.ReplyTo)
	}
	if r.Unanswered > 0 {
		parts = append(parts, fmt.Sprintf("%d messages in a row have no answer", r.Unanswered))
	}
	return strings.Join(parts, " and ")
}

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
