package api

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow/workflowwire"
)

// ListWorkflows implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) ListWorkflows(context.Context, *troupev1.ListWorkflowsRequest) (*troupev1.ListWorkflowsResponse, error) {
	resp := &troupev1.ListWorkflowsResponse{}
	for _, flow := range o.Workflows.All() {
		resp.Workflows = append(resp.Workflows, o.workflowToProto(flow))
	}
	return resp, nil
}

// GetWorkflow implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) GetWorkflow(_ context.Context, req *troupev1.GetWorkflowRequest) (*troupev1.GetWorkflowResponse, error) {
	flow, ok := o.Workflows.Find(req.GetName())
	if !ok {
		return nil, failure.Newf(failure.NotFound, "orchestrator.GetWorkflow", "%s", o.Workflows.NotFoundText(req.GetName()))
	}
	shown := o.workflowToProto(flow)
	for _, name := range flow.Reachable() {
		shown.Steps = append(shown.Steps, workflowwire.StepToProto(flow.Steps[name]))
	}
	return &troupev1.GetWorkflowResponse{Workflow: shown}, nil
}

// workflowToProto returns a workflow as clients see it, without its steps.
func (o *Orchestrator) workflowToProto(flow *workflow.Workflow) *troupev1.Workflow {
	shown := workflowwire.WorkflowToProto(flow)
	byDefault, _ := o.Workflows.Find("")
	shown.IsDefault = flow == byDefault
	return shown
}
