// Package workflowwire converts workflows to their messages for clients.
package workflowwire

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/wire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/choice"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// WorkflowToProto converts a workflow without its steps.
func WorkflowToProto(flow *workflow.Workflow) *troupev1.Workflow {
	shown := &troupev1.Workflow{
		Name: flow.Name, Description: flow.Description, Entry: flow.Entry, HistoryWindow: int32(flow.HistoryWindow),
		MaxSteps: int32(flow.MaxSteps), Agents: flow.Agents(), Limits: wire.LimitsToProto(flow.Budget),
	}
	if flow.Timeout > 0 {
		shown.Timeout = durationpb.New(flow.Timeout)
	}
	return shown
}

// StepToProto converts a step, including the edges to all steps that can follow it.
func StepToProto(s workflow.Step) *troupev1.WorkflowStep {
	shown := &troupev1.WorkflowStep{
		Name: s.Name, Agent: s.Agent, End: s.End, Fork: s.Fork, Limit: int32(s.MaxEntries),
		Retries: int32(s.OnError.Retries), Continues: s.OnError.Continue,
		Choose: policyToProto(s.Choose), Tools: policyToProto(s.Tools), Instances: describeInstances(s.Instances),
	}
	add := func(to string, kind troupev1.WorkflowEdgeKind, condition string) {
		if to != "" {
			shown.Edges = append(shown.Edges, &troupev1.WorkflowEdge{Step: to, Kind: kind, Condition: condition})
		}
	}
	for _, r := range s.Rules {
		add(r.Next, troupev1.WorkflowEdgeKind_WORKFLOW_EDGE_KIND_RULE, r.String())
	}
	add(s.Otherwise, troupev1.WorkflowEdgeKind_WORKFLOW_EDGE_KIND_OTHERWISE, "")
	add(s.OnError.Fallback, troupev1.WorkflowEdgeKind_WORKFLOW_EDGE_KIND_FALLBACK, "")
	for _, route := range s.Routes {
		condition := ""
		if route == s.Default {
			condition = "the default"
		}
		add(route, troupev1.WorkflowEdgeKind_WORKFLOW_EDGE_KIND_ROUTE, condition)
	}
	for _, e := range s.Then {
		add(e.Next, troupev1.WorkflowEdgeKind_WORKFLOW_EDGE_KIND_THEN, e.When.String())
	}
	for _, head := range s.Parallel {
		add(head, troupev1.WorkflowEdgeKind_WORKFLOW_EDGE_KIND_BRANCH, "")
	}
	add(s.Join, troupev1.WorkflowEdgeKind_WORKFLOW_EDGE_KIND_JOIN, "")
	add(s.Next, troupev1.WorkflowEdgeKind_WORKFLOW_EDGE_KIND_NEXT, "")
	shown.Task, shown.Expects, shown.Constraints = s.Task, s.Expects, s.Constraints
	if p := s.Plan; p != nil {
		shown.Plan = &troupev1.WorkflowPlan{Agents: p.Agents, Max: int32(p.MaxTasks), Parallel: p.Parallel, Continues: p.Continue}
	}
	return shown
}

// policyToProto converts the policy that chooses agents or tools (nil when the policy is zero).
func policyToProto(p choice.Policy) *troupev1.ChoicePolicy {
	if p.IsZero() {
		return nil
	}
	shown := &troupev1.ChoicePolicy{Strategy: routing.StrategyToProto(p.Strategy), Needs: p.Needs, Names: p.Names}
	for name, priority := range p.Priorities {
		if shown.Priorities == nil {
			shown.Priorities = map[string]int32{}
		}
		shown.Priorities[name] = int32(priority)
	}
	return shown
}

// describeInstances describes in words how an instance is selected (empty for round robin, the default).
func describeInstances(p selection.Policy) string {
	var parts []string
	if p.Instance != "" {
		parts = append(parts, p.Instance)
	}
	if p.Fallback != "" {
		parts = append(parts, "else "+string(p.Fallback))
	}
	if len(p.Needs) > 0 {
		parts = append(parts, "needs "+strings.Join(p.Needs, " "))
	}
	for _, of := range []map[string]int{p.Weights, p.Priorities} {
		for _, version := range slices.Sorted(maps.Keys(of)) {
			parts = append(parts, fmt.Sprintf("%s %d", version, of[version]))
		}
	}
	switch {
	case p.Strategy == selection.RoundRobin:
		return ""
	case len(parts) == 0:
		return string(p.Strategy)
	}
	return fmt.Sprintf("%s (%s)", p.Strategy, strings.Join(parts, ", "))
}
