package api

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/choice"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// ListWorkflows implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) ListWorkflows(context.Context, *troupev1.ListWorkflowsRequest) (*troupev1.ListWorkflowsResponse, error) {
	resp := &troupev1.ListWorkflowsResponse{}
	for _, flow := range o.Workflows.All() {
		resp.Workflows = append(resp.Workflows, o.workflow(flow))
	}
	return resp, nil
}

// GetWorkflow implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) GetWorkflow(_ context.Context, req *troupev1.GetWorkflowRequest) (*troupev1.GetWorkflowResponse, error) {
	flow, ok := o.Workflows.Find(req.GetName())
	if !ok {
		return nil, failure.Newf(failure.NotFound, "orchestrator.GetWorkflow", "%s", o.Workflows.Missing(req.GetName()))
	}
	shown := o.workflow(flow)
	for _, name := range flow.Reachable() {
		shown.Steps = append(shown.Steps, shownStep(flow.Steps[name]))
	}
	return &troupev1.GetWorkflowResponse{Workflow: shown}, nil
}

// workflow is one without its steps.
func (o *Orchestrator) workflow(flow *workflow.Workflow) *troupev1.Workflow {
	first, _ := o.Workflows.Find("")
	shown := &troupev1.Workflow{
		Name: flow.Name, Description: flow.Description, Entry: flow.Entry, HistoryWindow: int32(flow.Window),
		MaxSteps: int32(flow.MaxSteps), IsDefault: flow == first, Agents: flow.Agents(),
		Limits: wire.LimitsToProto(flow.Budget),
	}
	if flow.Timeout > 0 {
		shown.Timeout = durationpb.New(flow.Timeout)
	}
	return shown
}

func shownStep(s workflow.Step) *troupev1.WorkflowStep {
	shown := &troupev1.WorkflowStep{
		Name: s.Name, Agent: s.Agent, End: s.End, Fork: s.Fork, Limit: int32(s.Limit),
		Retries: int32(s.OnError.Retries), Continues: s.OnError.Continue,
		Choose: shownPolicy(s.Choose), Tools: shownPolicy(s.Tools), Instances: shownInstances(s.Instances),
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
		shown.Plan = &troupev1.WorkflowPlan{Agents: p.Agents, Max: int32(p.Max), Parallel: p.Parallel, Continues: p.Continue}
	}
	return shown
}

// shownPolicy is how it is chosen among agents or tools; nil when it is not.
func shownPolicy(p choice.Policy) *troupev1.ChoicePolicy {
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

// shownInstances is how an instance is chosen, in words; empty when it is as nobody said anything.
func shownInstances(p selection.Policy) string {
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
