package worker

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/lifecycle"
	"github.com/troupe-dev/troupe/pkg/wire"
)

// lifecycleServer is the lifecycle over RPC.
type lifecycleServer struct {
	troupev1.UnimplementedLifecycleServiceServer
	instance *lifecycle.Instance
	drain    time.Duration // when the caller names none
}

// Startup implements troupev1.LifecycleServiceServer.
func (s *lifecycleServer) Startup(ctx context.Context, _ *troupev1.StartupRequest) (*troupev1.StartupResponse, error) {
	if err := s.instance.Startup(ctx); err != nil {
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
	err := s.instance.Shutdown(ctx, drain, req.GetReason())
	if ctx.Err() != nil {
		return nil, err
	}
	resp := &troupev1.ShutdownResponse{Status: s.status()}
	if err != nil {
		resp.Errors = strings.Split(err.Error(), "\n")
	}
	return resp, nil
}

// Pause implements troupev1.LifecycleServiceServer.
func (s *lifecycleServer) Pause(ctx context.Context, req *troupev1.PauseRequest) (*troupev1.PauseResponse, error) {
	if err := s.instance.Pause(ctx, req.GetReason()); err != nil {
		return nil, err
	}
	return &troupev1.PauseResponse{Status: s.status()}, nil
}

// Resume implements troupev1.LifecycleServiceServer.
func (s *lifecycleServer) Resume(_ context.Context, req *troupev1.ResumeRequest) (*troupev1.ResumeResponse, error) {
	if err := s.instance.Resume(req.GetReason()); err != nil {
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
	m := s.instance.Metrics()
	return &troupev1.GetMetricsResponse{
		StartupTime:      durationpb.New(m.StartupTime),
		ShutdownTime:     durationpb.New(m.ShutdownTime),
		ActiveTime:       durationpb.New(m.ActiveTime),
		TotalRequests:    m.TotalRequests,
		FailedRequests:   m.FailedRequests,
		StateTransitions: m.StateTransitions,
	}, nil
}

func (s *lifecycleServer) status() *troupev1.InstanceStatus {
	st := s.instance.Status()
	return &troupev1.InstanceStatus{
		State:        wire.StateToProto(st.State),
		StateVersion: st.Version,
		InFlight:     int32(st.InFlight),
		Capacity:     int32(st.Capacity),
		Pausing:      st.Pausing,
		Since:        timestamppb.New(st.Since),
		Reason:       st.Reason,
	}
}
