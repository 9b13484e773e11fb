package cursor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Confidences of decisions. Decisions by the workflow and its rules are certain. The choice of a model is not.
const (
	certainConfidence = 1.0
	learnedConfidence = 0.8
	guessedConfidence = 0.5
)

// firstDecision returns the decision for the first step of a turn.
func firstDecision(w *workflow.Workflow) routing.Decision {
	step := w.Steps[w.Entry]
	if w.Name == "" {
		return fixedDecision(step, fmt.Sprintf("the call names the agent %s", step.Agent))
	}
	return fixedDecision(step, fmt.Sprintf("the workflow %s begins with %s", w.Name, step.Name))
}

// nextDecision returns the decision that follows a step. The decision has no step after the end of the turn and at
// a fork. It fails with the step's own failure if that ends the turn. It fails with agent_contract if the step
// asks for an agent that the workflow forbids (RA-7).
func nextDecision(w *workflow.Workflow, from workflow.Step, result execution.Result) (routing.Decision, error) {
	failed := result.Failure
	switch {
	case failed == nil && (result.InputRequired || result.Stopped):
		return routing.Decision{}, checkMayEnd(from, result)
	case failed == nil && len(result.Tasks) > 0:
		return planDecision(w, from, result.Tasks)
	case failed != nil && from.OnError.Fallback != "" && !isPolicyRejection(failed):
		return routing.Decision{
			Step:     w.Steps[from.OnError.Fallback],
			Reason:   fmt.Sprintf("%s failed (%s); %s is its fallback", from.Name, modeName(failed), from.OnError.Fallback),
			Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_DEFAULT, Confidence: guessedConfidence,
		}, nil
	case failed != nil && from.OnError.Continue && failed.Mode != failure.UserCancelled: // the turn continues as if it had not failed
	case failed != nil && (len(from.Routes) == 0 || isPolicyRejection(failed)):
		return routing.Decision{}, failed
	}
	if len(from.Routes) > 0 {
		return routeDecision(w, from, result)
	}
	for i, edge := range from.Then {
		if edge.When.Holds(result) {
			return routing.Decision{
				Step:     w.Steps[edge.Next],
				Reason:   fmt.Sprintf("the result of %s meets condition %d: %s", from.Name, i+1, edge.When),
				Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_RULE, Confidence: certainConfidence,
			}, nil
		}
	}
	if from.End || len(from.Parallel) > 0 {
		return routing.Decision{}, nil
	}
	return fixedDecision(w.Steps[from.Next], fmt.Sprintf("%s always follows %s", from.Next, from.Name)), nil
}

// checkMayEnd returns an error for a step in a branch, because the turn cannot end while other branches run. A step
// whose calls wait only ends the turn after its round.
func checkMayEnd(from workflow.Step, result execution.Result) error {
	if from.Fork == "" || len(result.Pending) > 0 {
		return nil
	}
	return failure.Newf(failure.AgentContract, routing.Op,
		"agent %s would end the turn in a branch of %s; only a step outside of branches may ask the user or stop", from.Agent, from.Fork)
}

// ruleDecision returns the decision of the first matching rule of a step, and whether there is one. If so, the
// agent of the step does not run (RA-8, RA-10).
func ruleDecision(w *workflow.Workflow, step workflow.Step, history []conversation.Message) (routing.Decision, bool) {
	rule, ok := matchRule(step, history)
	return routing.Decision{
		Step:     w.Steps[rule.Next],
		Reason:   fmt.Sprintf("%s, so %s is not asked", rule, cmp.Or(step.Agent, step.Name)),
		Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_RULE, Confidence: certainConfidence,
		Alternatives: otherAgents(w, step.Routes, rule.Next),
	}, ok
}

// limitDecision returns the decision that replaces a step whose limit is reached. The second result reports
// whether the limit is reached.
func limitDecision(w *workflow.Workflow, step workflow.Step, times int) (routing.Decision, bool) {
	return routing.Decision{
		Step:     w.Steps[step.Otherwise],
		Reason:   fmt.Sprintf("the turn came to %s %d times, which is its limit", step.Name, times),
		Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_RULE, Confidence: certainConfidence,
	}, step.MaxEntries > 0 && times >= step.MaxEntries
}

// isPolicyRejection reports whether a policy or the user rejected a step. A default route or fallback applies only
// to a step that failed, so that it cannot bypass a rejection.
func isPolicyRejection(f *failure.Error) bool {
	return failure.Is(f, failure.PolicySecurity, failure.PolicyBudget, failure.PolicyAllowlist, failure.PolicyRateLimit,
		failure.UserPermission, failure.UserUnauthenticated, failure.UserInvalidInput, failure.UserCancelled)
}

// routeDecision follows the route that the agent of a step chose, or else the default route.
func routeDecision(w *workflow.Workflow, from workflow.Step, result execution.Result) (routing.Decision, error) {
	asked := result.NextAgent
	if asked != "" {
		for _, name := range from.Routes {
			if w.Steps[name].Agent == asked {
				return routing.Decision{
					Step:     w.Steps[name],
					Reason:   fmt.Sprintf("%s chose %s", from.Agent, asked),
					Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_LEARNED, Confidence: learnedConfidence,
					Alternatives: otherAgents(w, from.Routes, name), Fallback: defaultAgent(w, from, name),
				}, nil
			}
		}
		return routing.Decision{}, failure.Newf(failure.AgentContract, routing.Op,
			"agent %s asks to hand on to %q; the workflow allows %s", from.Agent, asked, strings.Join(otherAgents(w, from.Routes, ""), ", "))
	}
	why := fmt.Sprintf("%s named none of its routes", from.Agent)
	if result.Failure != nil {
		why = fmt.Sprintf("%s failed (%s)", from.Agent, modeName(result.Failure))
	}
	if from.Default == "" {
		if result.Failure != nil {
			return routing.Decision{}, result.Failure
		}
		return routing.Decision{}, failure.Newf(failure.AgentContract, routing.Op, "%s, and step %s has no default", why, from.Name)
	}
	return routing.Decision{
		Step:     w.Steps[from.Default],
		Reason:   why + "; " + from.Default + " is the default",
		Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_DEFAULT, Confidence: guessedConfidence,
		Alternatives: otherAgents(w, from.Routes, from.Default),
	}, nil
}

func fixedDecision(step workflow.Step, reason string) routing.Decision {
	return routing.Decision{Step: step, Reason: reason, Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_FIXED, Confidence: certainConfidence}
}

func matchRule(step workflow.Step, history []conversation.Message) (workflow.Rule, bool) {
	i := slices.IndexFunc(step.Rules, func(r workflow.Rule) bool { return r.Matches(history) })
	if i < 0 {
		return workflow.Rule{}, false
	}
	return step.Rules[i], true
}

func modeName(f *failure.Error) string { return cmp.Or(string(f.Mode), "unknown") }

// otherAgents returns the agents of all routes except the chosen one.
func otherAgents(w *workflow.Workflow, routes []string, chosen string) []string {
	var all []string
	for _, name := range routes {
		if name != chosen {
			all = append(all, w.Steps[name].Agent)
		}
	}
	return all
}

// defaultAgent returns the agent of a step's default route (empty if that is the chosen agent).
func defaultAgent(w *workflow.Workflow, from workflow.Step, chosen string) string {
	agent := w.Steps[from.Default].Agent
	if agent == w.Steps[chosen].Agent {
		return ""
	}
	return agent
}
