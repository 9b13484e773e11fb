package conformance

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	"github.com/troupe-dev/troupe/internal/conformance/internal/observation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// traceFromContext returns the trace id in the W3C traceparent header of a call.
func traceFromContext(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	for _, parent := range md.Get("traceparent") {
		if parts := strings.Split(parent, "-"); len(parts) == 4 {
			return parts[1]
		}
	}
	return ""
}

// GetState implements troupev1.LifecycleServiceServer.
func (r *referenceInstance) GetState(ctx context.Context, _ *troupev1.GetStateRequest) (*troupev1.GetStateResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hasFault(answersSlowly) {
		r.await(ctx, func() time.Time { return time.Now().Add(100 * time.Millisecond) }, func() bool { return false })
	}
	if r.hasFault(getStateWaitsForStartup) {
		r.await(ctx, farFuture, func() bool { return !r.hookRunning })
	}
	return &troupev1.GetStateResponse{Status: proto.CloneOf(r.status)}, nil
}

// GetMetrics implements troupev1.LifecycleServiceServer.
func (r *referenceInstance) GetMetrics(context.Context, *troupev1.GetMetricsRequest) (*troupev1.GetMetricsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := proto.CloneOf(r.metrics)
	if r.status.State == check.Busy {
		m.ActiveTime = durationpb.New(m.ActiveTime.AsDuration() + time.Since(r.busySince))
	}
	return m, nil
}

// OwnsState implements troupev1.LifecycleServiceServer.
func (r *referenceInstance) OwnsState(_ context.Context, req *troupev1.OwnsStateRequest) (*troupev1.OwnsStateResponse, error) {
	return r.lookUpOwner(req.GetKey()), nil
}

func (r *referenceInstance) lookUpOwner(key string) *troupev1.OwnsStateResponse {
	owner := observation.OwnedByAgent
	switch {
	case strings.HasPrefix(key, "_"):
		return &troupev1.OwnsStateResponse{Owner: observation.OwnedByAgent, Owns: true, Declared: true}
	case key == "user_history" && r.hasFault(ownsUserHistory):
	case slices.Contains([]string{"history", "user_history", "embeddings", "facts", "learned_facts", "preferences", "memory"}, key):
		owner = observation.OwnedByMemory
	case slices.Contains([]string{"trace_id", "routing", "routing_context", "context", "parent_context"}, key):
		owner = observation.OwnedByOrchestrator
	case key == "config":
		owner = observation.OwnedByBoth
	}
	return &troupev1.OwnsStateResponse{Owner: owner, Owns: owner == observation.OwnedByAgent, Declared: owner != observation.OwnedByAgent}
}

// WatchState implements troupev1.LifecycleServiceServer.
func (r *referenceInstance) WatchState(req *troupev1.WatchStateRequest, stream troupev1.LifecycleService_WatchStateServer) error {
	after := req.GetAfterVersion()
	r.mu.Lock()
	version, first := r.status.StateVersion, proto.CloneOf(r.status)
	r.mu.Unlock()
	switch {
	case after > version && !r.hasFault(acceptsFutureVersion):
		return failure.New(failure.UserInvalidInput, "WatchState", "after_version: it is higher than the current version")
	case version-min(after, version) > 1024:
		return failure.New(failure.ResourceQuota, "WatchState", "after_version: no longer known")
	}
	if err := stream.Send(&troupev1.WatchStateResponse{Status: first}); err != nil {
		return err
	}
	for {
		r.mu.Lock()
		var fresh []*troupev1.Transition
		for _, t := range r.history {
			if t.Version > after && (t.Version != 2 || !r.hasFault(watchSkipsTransition)) {
				fresh = append(fresh, t)
			}
		}
		now, changed := proto.CloneOf(r.status), r.changed
		r.mu.Unlock()
		for _, t := range fresh {
			if err := stream.Send(&troupev1.WatchStateResponse{Transition: t, Status: now}); err != nil {
				return err
			}
			after = t.Version
		}
		if now.State == check.Terminated && !r.hasFault(watchNeverEnds) {
			return nil
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
