// Package lifecycleserver implements LifecycleService for one instance.
package lifecycleserver

import (
	"context"
	"encoding/hex"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// Server implements LifecycleService for one instance.
type Server struct {
	troupev1.UnimplementedLifecycleServiceServer
	Instance     *lifecycle.Instance
	ID           string
	Agent        string
	Version      string
	DefaultDrain time.Duration // drain time for requests without one
	State        *ownership.AgentState
	Instructions string // the agent's system prompt
}

// maxInstructions limits the system prompt in a response, in bytes.
const maxInstructions = 256 << 10

// Startup implements troupev1.LifecycleServiceServer.
func (s *Server) Startup(ctx context.Context, req *troupev1.StartupRequest) (*troupev1.StartupResponse, error) {
	if err := s.Instance.StartupWith(verbContext(ctx, req.IfStateVersion), settingsFromProto(req.GetSettings())); err != nil {
		return nil, err
	}
	return &troupev1.StartupResponse{Status: s.status()}, nil
}

// settingsFromProto converts the settings of a Startup. What they leave out stays as the worker has it.
func settingsFromProto(p *troupev1.LifecycleSettings) lifecycle.Settings {
	s := lifecycle.Settings{Timeout: p.GetTimeout().AsDuration()}
	if kept := p.GetStatePersistence(); kept != troupev1.StatePersistence_STATE_PERSISTENCE_UNSPECIFIED {
		s.DropState = new(kept == troupev1.StatePersistence_STATE_PERSISTENCE_AGENT)
	}
	if p != nil && p.MaxRetries != nil {
		s.MaxRetries = new(int(p.GetMaxRetries()))
	}
	if p != nil && p.CleanupOnError != nil {
		s.KeepFailed = new(!p.GetCleanupOnError())
	}
	return s
}

// Shutdown implements troupev1.LifecycleServiceServer.
func (s *Server) Shutdown(ctx context.Context, req *troupev1.ShutdownRequest) (*troupev1.ShutdownResponse, error) {
	drain := s.DefaultDrain
	if req.GetDrain() != nil {
		drain = req.GetDrain().AsDuration()
	}
	err := s.Instance.Shutdown(verbContext(ctx, req.IfStateVersion), drain, req.GetReason())
	joined, ended := err.(interface{ Unwrap() []error }) // the errors of the shutdown itself
	if ctx.Err() != nil || err != nil && !ended {
		return nil, err
	}
	resp := &troupev1.ShutdownResponse{Status: s.status()}
	if ended {
		for _, e := range joined.Unwrap() {
			resp.Errors = append(resp.Errors, failure.PlainMessage(e))
		}
	}
	return resp, nil
}

// Pause implements troupev1.LifecycleServiceServer.
func (s *Server) Pause(ctx context.Context, req *troupev1.PauseRequest) (*troupev1.PauseResponse, error) {
	if err := s.Instance.Pause(verbContext(ctx, req.IfStateVersion), req.GetReason()); err != nil {
		return nil, err
	}
	return &troupev1.PauseResponse{Status: s.status()}, nil
}

// Resume implements troupev1.LifecycleServiceServer.
func (s *Server) Resume(ctx context.Context, req *troupev1.ResumeRequest) (*troupev1.ResumeResponse, error) {
	if err := s.Instance.Resume(verbContext(ctx, req.IfStateVersion), req.GetReason()); err != nil {
		return nil, err
	}
	return &troupev1.ResumeResponse{Status: s.status()}, nil
}

// GetState implements troupev1.LifecycleServiceServer.
func (s *Server) GetState(_ context.Context, req *troupev1.GetStateRequest) (*troupev1.GetStateResponse, error) {
	resp := &troupev1.GetStateResponse{Status: s.status()}
	if req.GetWithInstructions() {
		resp.Instructions = conversation.Truncate(strings.ToValidUTF8(s.Instructions, "\uFFFD"), maxInstructions)
	}
	return resp, nil
}

// GetMetrics implements troupev1.LifecycleServiceServer.
func (s *Server) GetMetrics(context.Context, *troupev1.GetMetricsRequest) (*troupev1.GetMetricsResponse, error) {
	return instancewire.MetricsToProto(s.Instance.Metrics()), nil
}

// OwnsState implements troupev1.LifecycleServiceServer.
func (s *Server) OwnsState(_ context.Context, req *troupev1.OwnsStateRequest) (*troupev1.OwnsStateResponse, error) {
	owner, declared := s.State.Owner(req.GetKey())
	return &troupev1.OwnsStateResponse{Owner: instancewire.OwnerToProto(owner), Owns: owner == ownership.Agent, Declared: declared}, nil
}

// WatchState implements troupev1.LifecycleServiceServer.
func (s *Server) WatchState(req *troupev1.WatchStateRequest, stream troupev1.LifecycleService_WatchStateServer) error {
	after := req.GetAfterVersion()
	for first := true; ; first = false {
		fresh, status, changed, err := s.Instance.Transitions(after)
		if err != nil {
			return err
		}
		if first {
			if err := stream.Send(&troupev1.WatchStateResponse{Status: s.statusToProto(status)}); err != nil {
				return err
			}
		}
		for _, t := range fresh {
			after = t.Version
			if err := stream.Send(&troupev1.WatchStateResponse{Transition: instancewire.TransitionToProto(t), Status: s.statusToProto(status)}); err != nil {
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

func (s *Server) status() *troupev1.InstanceStatus { return s.statusToProto(s.Instance.Status()) }

func (s *Server) statusToProto(st lifecycle.Status) *troupev1.InstanceStatus {
	status := instancewire.StatusToProto(st)
	status.InstanceId, status.Agent, status.Version = s.ID, s.Agent, s.Version
	return status
}

// verbContext returns the context of a verb: WithTransitionCause, and the version that the status must have (nil means any).
func verbContext(ctx context.Context, version *uint64) context.Context {
	ctx = WithTransitionCause(ctx)
	if version != nil {
		ctx = lifecycle.ContextIfVersion(ctx, *version)
	}
	return ctx
}

// WithTransitionCause returns a context whose state transitions are recorded with the trace and the caller of the call. If
// the call has no trace, they get a new one.
func WithTransitionCause(ctx context.Context) context.Context {
	return lifecycle.ContextWithCause(ctx, transitionTrace(ctx), identity.PrincipalFromContext(ctx).String())
}

// WithTransitionTrace returns a context whose state transitions the process itself causes.
func WithTransitionTrace(ctx context.Context) context.Context {
	return lifecycle.ContextWithCause(ctx, transitionTrace(ctx), "")
}

func transitionTrace(ctx context.Context) string {
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		return span.TraceID().String()
	}
	id := uuid.New()
	return hex.EncodeToString(id[:])
}
