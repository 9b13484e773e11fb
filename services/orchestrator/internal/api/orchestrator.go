// Package api serves the OrchestratorService. It translates requests into calls of other packages.
package api

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/wire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/operate"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/progress"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/replay"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// tenantFromContext returns the tenant of the caller. Every lookup includes it, so a call never finds objects of
// another tenant (guarantee S5).
func tenantFromContext(ctx context.Context) string { return identity.PrincipalFromContext(ctx).Tenant }

// Orchestrator implements troupev1.OrchestratorServiceServer.
type Orchestrator struct {
	troupev1.UnimplementedOrchestratorServiceServer
	Runner    *turn.Runner
	Traces    *trace.Traces
	Instances *instances.Cache
	Workflows *workflow.Set
	Operator  *operate.Operator
	Replayer  *replay.Replayer

	streams streams
}

// Close waits for goroutines that calls left behind. Stop the gRPC server first.
func (o *Orchestrator) Close() error {
	o.streams.sendersDone.Wait()
	return nil
}

// Orchestrate implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) Orchestrate(req *troupev1.OrchestrateRequest, stream troupev1.OrchestratorService_OrchestrateServer) error {
	files, err := wire.InputFiles(req.GetParts())
	if err != nil {
		return err
	}
	if err := request.CheckMetadata(req.GetMetadata()); err != nil {
		return err
	}
	ask := request.Request{
		User: req.GetUserId(), RequestID: idOrNew(req.GetRequestId()),
		Text: req.GetText(), Files: files, Answers: wire.AnswersFromProto(req.GetAnswers().GetAnswers()),
		Target: req.GetTarget(), Timeout: req.GetTimeout().AsDuration(),
		Policies: request.Policies{OnBusy: busyPolicies[req.GetOnBusy()], CancelOnDisconnect: isCancel(req.GetOnDisconnect())},
		Auth:     wire.AuthFromProto(req.GetAuth()), ParentTrace: parentTrace(stream.Context(), req),
		Parent: req.GetParent(), Source: request.SourceFromProto(req.GetFrom()),
		Labels: request.Labels{
			Profile: req.GetProfile(), Metadata: req.GetMetadata(), Needs: req.GetNeeds(),
			Priority: req.Priority, Tags: req.GetTags(), //nolint:protogetter // whether a priority is there counts
			MaxIterations: req.GetMaxIterations(), ErrorStrategy: errorStrategies[req.GetErrorStrategy()],
		},
	}
	ask.Tenant, ask.Session = tenantFromContext(stream.Context()), requestedSessionID(req)
	if b := req.GetBudget(); b != nil {
		limits := wire.LimitsFromProto(b)
		ask.Budget = &limits
	}
	clear(req.GetAuth().GetCredentials())
	req.Auth = nil // the plaintext credentials are dropped here
	return o.streams.sendAll(o.Runner.Orchestrate(stream.Context(), ask), func(e *troupev1.Event) error {
		return stream.Send(&troupev1.OrchestrateResponse{Event: e})
	})
}

// parentTrace returns the trace of the turn that waits for the requested turn. A worker that names no parent gets
// the turn of its credential (see package scope).
func parentTrace(ctx context.Context, req *troupev1.OrchestrateRequest) string {
	if said := turncred.ParentTraceFromContext(ctx); said != "" || identity.PrincipalFromContext(ctx).Role != identity.Worker {
		return said
	}
	return req.GetParent().GetTraceId()
}

// busyPolicies maps the policies of the wire format to the policies of package turn. The default is Reject.
var busyPolicies = map[troupev1.OnBusy]request.BusyPolicy{
	troupev1.OnBusy_ON_BUSY_REJECT:    request.Reject,
	troupev1.OnBusy_ON_BUSY_ENQUEUE:   request.Enqueue,
	troupev1.OnBusy_ON_BUSY_INTERRUPT: request.Interrupt,
}

// errorStrategies maps the strategies of the wire format to those of package workflow. It has no entry for UNSPECIFIED,
// which leaves the strategy of the workflow unchanged.
var errorStrategies = map[troupev1.ErrorStrategy]workflow.ErrorStrategy{
	troupev1.ErrorStrategy_ERROR_STRATEGY_FAIL_FAST: workflow.FailFast,
	troupev1.ErrorStrategy_ERROR_STRATEGY_CONTINUE:  workflow.Continue,
	troupev1.ErrorStrategy_ERROR_STRATEGY_RETRY:     workflow.Retry,
	troupev1.ErrorStrategy_ERROR_STRATEGY_FALLBACK:  workflow.Fallback,
}

func isCancel(p troupev1.OnDisconnect) bool { return p == troupev1.OnDisconnect_ON_DISCONNECT_CANCEL }

// WatchTrace implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) WatchTrace(req *troupev1.WatchTraceRequest, stream troupev1.OrchestratorService_WatchTraceServer) error {
	ref := trace.Ref{Tenant: tenantFromContext(stream.Context()), Trace: req.GetTraceId()}
	events := o.Runner.Watch(stream.Context(), ref, req.GetAfterSequence(), isCancel(req.GetOnDisconnect()))
	return o.streams.sendAll(events, func(e *troupev1.Event) error {
		return stream.Send(&troupev1.WatchTraceResponse{Event: e})
	})
}

// GetTrace implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) GetTrace(ctx context.Context, req *troupev1.GetTraceRequest) (*troupev1.GetTraceResponse, error) {
	ref := trace.Ref{Tenant: tenantFromContext(ctx), Trace: req.GetTraceId()}
	t, err := o.Traces.Store().Get(ctx, ref)
	if err != nil || !req.GetPlan() {
		return &troupev1.GetTraceResponse{Trace: t}, err
	}
	events, err := o.Traces.StoredEvents(ctx, ref, t.GetLastSequence())
	for _, step := range progress.StepsFromEvents(events) {
		t.Plan = append(t.Plan, step.Proto())
	}
	return &troupev1.GetTraceResponse{Trace: t}, err
}

// CancelTrace implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) CancelTrace(ctx context.Context, req *troupev1.CancelTraceRequest) (*troupev1.CancelTraceResponse, error) {
	ref := trace.Ref{Tenant: tenantFromContext(ctx), Trace: req.GetTraceId()}
	if err := o.Runner.CancelTrace(ctx, ref, req.GetReason()); err != nil {
		return nil, err
	}
	t, err := o.Traces.Store().Get(ctx, ref)
	return &troupev1.CancelTraceResponse{Trace: t}, err
}

// defaultTracePageSize is the page size when the request specifies none.
const defaultTracePageSize = 20

// ListTraces implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) ListTraces(ctx context.Context, req *troupev1.ListTracesRequest) (*troupev1.ListTracesResponse, error) {
	limit := int(req.GetPageSize())
	if limit == 0 {
		limit = defaultTracePageSize
	}
	all, err := o.Traces.Store().List(ctx, tenantFromContext(ctx), trace.Query{Root: req.GetRootTraceId(), OnlyQuarantined: req.GetQuarantined(), Limit: limit})
	return &troupev1.ListTracesResponse{Traces: all}, err
}

// ListAgents implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) ListAgents(context.Context, *troupev1.ListAgentsRequest) (*troupev1.ListAgentsResponse, error) {
	agents := map[string]*troupev1.Agent{}
	named := func(name string) *troupev1.Agent {
		if agents[name] == nil {
			agents[name] = &troupev1.Agent{Name: name}
		}
		return agents[name]
	}
	for _, in := range o.Instances.Instances() {
		a := named(in.Agent)
		a.Description = in.Description
		a.Instances++
		if !slices.Contains(a.Versions, in.Version) {
			a.Versions = append(a.Versions, in.Version)
		}
	}
	for _, flow := range o.Workflows.All() {
		for _, name := range flow.Agents() {
			a := named(name)
			a.Workflows = append(a.Workflows, flow.Name)
		}
	}
	for _, d := range o.Instances.Desired().Quarantines() {
		named(d.Key.Agent) // true even for an agent without instances and workflows
	}
	resp := &troupev1.ListAgentsResponse{}
	for _, a := range agents {
		a.Quarantine = o.quarantineToProto(a.GetName())
		a.Ready = int32(o.Instances.Ready(a.GetName()))
		resp.Agents = append(resp.Agents, a)
	}
	slices.SortFunc(resp.Agents, func(a, b *troupev1.Agent) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return resp, nil
}

// ListInstances implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) ListInstances(ctx context.Context, req *troupev1.ListInstancesRequest) (*troupev1.ListInstancesResponse, error) {
	instances := slices.DeleteFunc(o.Instances.Instances(), func(in registry.Instance) bool {
		return req.GetAgent() != "" && req.GetAgent() != in.Agent
	})
	statuses := make([]*troupev1.InstanceStatus, len(instances))
	if req.GetLive() {
		statuses = o.Operator.Statuses(ctx, instances)
	}
	resp := &troupev1.ListInstancesResponse{}
	for i, in := range instances {
		shown := o.instanceToProto(in)
		shown.Status = statuses[i]
		resp.Instances = append(resp.Instances, shown)
	}
	return resp, nil
}

// requestedSessionID returns the session id of the request, or a new one if the request has none. A request that
// resumes a failed turn gets no new id, because the trace of the failed turn names the session.
func requestedSessionID(req *troupev1.OrchestrateRequest) string {
	if req.GetFrom() != nil && !req.GetFrom().GetFork() {
		return req.GetSessionId()
	}
	return idOrNew(req.GetSessionId())
}

// idOrNew returns the id of the request, or else a new id that sorts by time.
func idOrNew(id string) string {
	if id != "" {
		return id
	}
	return uuid.Must(uuid.NewV7()).String()
}
