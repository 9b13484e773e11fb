package worker

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// lifecycleServer is the lifecycle over RPC.
type lifecycleServer struct {
	troupev1.UnimplementedLifecycleServiceServer
	instance *lifecycle.Instance
	id       string
	agent    string
	version  string
	drain    time.Duration // when the caller names none
	state    *ownership.AgentState
}

// Startup implements troupev1.LifecycleServiceServer.
func (s *lifecycleServer) Startup(ctx context.Context, _ *troupev1.StartupRequest) (*troupev1.StartupResponse, error) {
	if err := s.instance.Startup(traced(ctx)); err != nil {
		return nil, err
	}
	return &troupev1.StartupResponse{Status: s.status()}, nil
}

// Shutdown implements troupev1.LifecycleServiceServer.
func (s *lifecycleServer) Shutdown(ctx context.Context, req *troupev1.ShutdownRequest) (*troupev1.ShutdownResponse, error) {
	drain := s.drain
	if req.GetDrain() != nil {
		drain = req.GetDrain().AsDuration()
	}
	err := s.instance.Shutdown(traced(ctx), drain, req.GetReason())
	if ctx.Err() != nil {
		return nil, err
	}
	resp := &troupev1.ShutdownResponse{Status: s.status()}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			resp.Errors = append(resp.Errors, failure.Plain(e))
		}
	}
	return resp, nil
}

// Pause implements troupev1.LifecycleServiceServer.
func (s *lifecycleServer) Pause(ctx context.Context, req *troupev1.PauseRequest) (*troupev1.PauseResponse, error) {
	if err := s.instance.Pause(traced(ctx), req.GetReason()); err != nil {
		return nil, err
	}
	return &troupev1.PauseResponse{Status: s.status()}, nil
}

// Resume implements troupev1.LifecycleServiceServer.
func (s *lifecycleServer) Resume(ctx context.Context, req *troupev1.ResumeRequest) (*troupev1.ResumeResponse, error) {
	if err := s.instance.Resume(traced(ctx), req.GetReason()); err != nil {
		return nil, err
	}
	return &troupev1.ResumeResponse{Status: s.status()}, nil
}

// GetState implements troupev1.LifecycleServiceServer.
func (s *lifecycleServer) GetState(context.Context, *troupev1.GetStateRequest) (*troupev1.GetStateResponse, error) {
	return &troupev1.GetStateResponse{Status: s.status()}, nil
}

// GetMetrics implements troupev1.LifecycleServiceServer.
func (s *lifecycleServer) GetMetrics(context.Context, *troupev1.GetMetricsRequest) (*troupev1.GetMetricsResponse, error) {
	return instancewire.MetricsToProto(s.instance.Metrics()), nil
}

// OwnsState implements troupev1.LifecycleServiceServer.
func (s *lifecycleServer) OwnsState(_ context.Context, req *troupev1.OwnsStateRequest) (*troupev1.OwnsStateResponse, error) {
	owner, declared := s.state.Owner(req.GetKey())
	return &troupev1.OwnsStateResponse{Owner: instancewire.OwnerToProto(owner), Owns: owner == ownership.Agent, Declared: declared}, nil
}

// WatchState implements troupev1.LifecycleServiceServer.
func (s *lifecycleServer) WatchState(req *troupev1.WatchStateRequest, stream troupev1.LifecycleService_WatchStateServer) error {
	after := req.GetAfterVersion()
	for first := true; ; first = false {
		fresh, status, changed, err := s.instance.Transitions(after)
		if err != nil {
			return err
		}
		if first {
			if err := stream.Send(&troupev1.WatchStateResponse{Status: s.named(status)}); err != nil {
				return err
			}
		}
		for _, t := range fresh {
			after = t.Version
			if err := stream.Send(&troupev1.WatchStateResponse{Transition: instancewire.TransitionToProto(t), Status: s.named(status)}); err != nil {
				return err
			}
		}
		if status.State == lifecycle.Terminated {
			return nil
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (s *lifecycleServer) status() *troupev1.InstanceStatus { return s.named(s.instance.Status()) }

func (s *lifecycleServer) named(st lifecycle.Status) *troupev1.InstanceStatus {
	status := instancewire.StatusToProto(st)
	status.InstanceId, status.Agent, status.Version = s.id, s.agent, s.version
	return status
}

// traced gives the transitions of a call the trace that it belongs to, or one of its own
// (LC-14).
func traced(ctx context.Context) context.Context {
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		return lifecycle.Traced(ctx, span.TraceID().String())
	}
	id := uuid.New()
	return lifecycle.Traced(ctx, hex.EncodeToString(id[:]))
}
