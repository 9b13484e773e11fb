package api

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/operate"
)

// PauseAgent implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) PauseAgent(ctx context.Context, req *troupev1.PauseAgentRequest) (*troupev1.PauseAgentResponse, error) {
	outcomes, err := o.Operator.Pause(ctx, req.GetAgent(), req.GetReason(), req.GetTimeout().AsDuration())
	return &troupev1.PauseAgentResponse{Instances: outcomesToProto(outcomes)}, err
}

// ResumeAgent implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) ResumeAgent(ctx context.Context, req *troupev1.ResumeAgentRequest) (*troupev1.ResumeAgentResponse, error) {
	outcomes, err := o.Operator.Resume(ctx, req.GetAgent(), req.GetReason())
	return &troupev1.ResumeAgentResponse{Instances: outcomesToProto(outcomes)}, err
}

// DrainInstance implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) DrainInstance(ctx context.Context, req *troupev1.DrainInstanceRequest) (*troupev1.DrainInstanceResponse, error) {
	ended, err := o.Operator.Drain(ctx, req.GetInstanceId(), req.GetAgent(), &troupev1.ShutdownRequest{
		Drain: req.GetDrain(), Reason: req.GetReason(), IfStateVersion: req.IfStateVersion,
	})
	return &troupev1.DrainInstanceResponse{Status: ended.GetStatus(), Errors: ended.GetErrors()}, err
}

// StartInstance implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) StartInstance(ctx context.Context, req *troupev1.StartInstanceRequest) (*troupev1.StartInstanceResponse, error) {
	status, err := o.Operator.Start(ctx, req.GetInstanceId(), req.GetAgent(), &troupev1.StartupRequest{
		Settings: req.GetSettings(), IfStateVersion: req.IfStateVersion,
	})
	return &troupev1.StartInstanceResponse{Status: status}, err
}

// DescribeInstance implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) DescribeInstance(ctx context.Context, req *troupev1.DescribeInstanceRequest) (*troupev1.DescribeInstanceResponse, error) {
	d, err := o.Operator.Describe(ctx, req.GetInstanceId(), req.GetAgent())
	if err != nil {
		return nil, err
	}
	return &troupev1.DescribeInstanceResponse{
		Instance: o.instanceToProto(d.Instance), Status: d.Status, Metrics: d.Metrics, Failure: grpcfailure.ToProto(d.Err),
		Instructions: d.Instructions,
	}, nil
}

// QuarantineAgent implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) QuarantineAgent(ctx context.Context, req *troupev1.QuarantineAgentRequest) (*troupev1.QuarantineAgentResponse, error) {
	outcomes, err := o.Operator.Quarantine(ctx, req.GetAgent(), req.GetReason())
	return &troupev1.QuarantineAgentResponse{Instances: outcomesToProto(outcomes)}, err
}

// ReleaseAgent implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) ReleaseAgent(ctx context.Context, req *troupev1.ReleaseAgentRequest) (*troupev1.ReleaseAgentResponse, error) {
	outcomes, err := o.Operator.Release(ctx, req.GetAgent(), req.GetReason())
	return &troupev1.ReleaseAgentResponse{Instances: outcomesToProto(outcomes)}, err
}

// quarantineToProto returns the quarantine of an agent as clients see it (nil when the agent is not quarantined).
func (o *Orchestrator) quarantineToProto(agent string) *troupev1.Quarantine {
	d, out := o.Instances.Desired().Quarantine(agent)
	if !out {
		return nil
	}
	return &troupev1.Quarantine{Reason: d.Reason, Since: timestamppb.New(d.Since)}
}

// instanceToProto returns a registered instance with its desired state, as clients see it.
func (o *Orchestrator) instanceToProto(in registry.Instance) *troupev1.Instance {
	shown, desire := instancewire.InstanceToProto(in), o.Instances.Desired().Get(in.Key())
	shown.Desired, shown.DesiredReason = desiredToProto(desire.Kind), desire.Reason
	shown.Missing = o.Instances.IsMissing(in.Key())
	shown.Quarantine, shown.Unproven = o.quarantineToProto(in.Agent), o.Operator.IdentityError(in)
	return shown
}

// desiredToProto returns the desired state as clients see it. A kind that this version does not know is shown as
// PAUSE, because it keeps steps away, too.
func desiredToProto(w registry.DesiredKind) troupev1.DesiredState {
	switch w {
	case registry.Run, "":
		return troupev1.DesiredState_DESIRED_STATE_RUN
	case registry.Drain:
		return troupev1.DesiredState_DESIRED_STATE_DRAIN
	default:
		return troupev1.DesiredState_DESIRED_STATE_PAUSE
	}
}

func outcomesToProto(outcomes []operate.Outcome) []*troupev1.InstanceOutcome {
	var all []*troupev1.InstanceOutcome
	for _, out := range outcomes {
		all = append(all, &troupev1.InstanceOutcome{InstanceId: out.Instance.ID, Status: out.Status, Failure: grpcfailure.ToProto(out.Err)})
	}
	return all
}
