package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/probe"
	"github.com/troupe-dev/troupe/internal/telemetry"
)

// Dial is DialWith without TLS.
func Dial(target string, t *telemetry.Telemetry, repeatable ...string) (*grpc.ClientConn, error) {
	return DialWith(insecure.NewCredentials(), target, t, repeatable...)
}

// DialWith returns a connection to the target, which is host:port or a gRPC target URI. The credentials decide
// what each side must prove. The connection is made when it is first used, and made again when it breaks; the
// caller closes it. Calls are distributed round-robin over all addresses of the target's name.
//
// Calls to the named services are retried up to twice when the server cannot be reached. So name only services
// whose methods are all idempotent.
func DialWith(creds credentials.TransportCredentials, target string, t *telemetry.Telemetry, repeatable ...string) (*grpc.ClientConn, error) {
	return Network{}.DialWith(creds, target, t, repeatable...)
}

// DialWith is like the function DialWith, over this network.
func (n Network) DialWith(creds credentials.TransportCredentials, target string, t *telemetry.Telemetry, repeatable ...string) (*grpc.ClientConn, error) {
	config, err := serviceConfig(repeatable)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(target, append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultServiceConfig(config),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: connectBackoff(), MinConnectTimeout: connectionTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxInternalMessageBytes)),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(
			otelgrpc.WithFilter(filters.Not(filters.HealthCheck())),
			otelgrpc.WithPropagators(propagation.TraceContext{}),
			otelgrpc.WithMeterProvider(t.Metrics), otelgrpc.WithTracerProvider(t.Traces))),
		grpc.WithChainUnaryInterceptor(runUnaryInterceptor), grpc.WithChainStreamInterceptor(runStreamInterceptor),
	}, n.DialOptions...)...)
	if err != nil {
		return nil, fmt.Errorf("rpc: dial %s: %w", target, err)
	}
	return conn, nil
}

// CheckTarget returns an error for a target that DialWith cannot use. Without this check the mistake would only
// show at the first call.
func CheckTarget(target string) error {
	if scheme, rest, ok := strings.Cut(target, ":"); ok && rest != "" && resolver.Get(scheme) != nil {
		return nil // a target URI, such as dns:///memory:7401
	}
	host, port, err := net.SplitHostPort(target)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || host == "" || port == "" {
		return fmt.Errorf("%q is not host:port", target)
	}
	return nil
}

// CheckServing returns a check that asks the server whether it serves the named service. So a different server at
// the same address does not pass.
func CheckServing(conn grpc.ClientConnInterface, service string) func(context.Context) error {
	client := healthpb.NewHealthClient(conn)
	return func(ctx context.Context) error {
		resp, err := client.Check(ctx, &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			return grpcfailure.FromStatus("health", err)
		}
		if resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			return &probe.NotServingError{Reason: "is not ready", Cause: errors.New(resp.GetStatus().String())}
		}
		return nil
	}
}

// maxConnectPause bounds the pause between attempts to connect. The library's default of 2 minutes would prolong
// outages.
const maxConnectPause = 2 * time.Second

func connectBackoff() backoff.Config {
	b := backoff.DefaultConfig
	b.BaseDelay, b.MaxDelay = 100*time.Millisecond, maxConnectPause
	return b
}

// serviceConfig returns the gRPC service config, with load balancing and the retry policy.
func serviceConfig(repeatable []string) (string, error) {
	config := map[string]any{"loadBalancingConfig": []any{map[string]any{"round_robin": map[string]any{}}}}
	if len(repeatable) > 0 {
		var names []any
		for _, service := range repeatable {
			names = append(names, map[string]any{"service": service})
		}
		config["methodConfig"] = []any{map[string]any{
			"name": names,
			"retryPolicy": map[string]any{
				"maxAttempts": 3, "initialBackoff": "0.05s", "maxBackoff": "0.5s", "backoffMultiplier": 2,
				"retryableStatusCodes": []string{"UNAVAILABLE"},
			},
		}}
	}
	b, err := json.Marshal(config)
	return string(b), err
}
