package app

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/probe"
)

// memoryHealth asks the memory service whether it serves.
func memoryHealth(conn grpc.ClientConnInterface) func(context.Context) error {
	client := healthpb.NewHealthClient(conn)
	return func(ctx context.Context) error {
		resp, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
		if err != nil {
			return failure.FromStatus("health", err)
		}
		if resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			return &probe.RefusedError{Reason: "is not ready", Cause: errors.New(resp.GetStatus().String())}
		}
		return nil
	}
}
