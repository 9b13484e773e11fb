// Package rpc makes every gRPC server and every connection of the mesh, so that all have
// the same limits, keepalive, telemetry and chain of interceptors.
package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/troupe-dev/troupe/pkg/identity"
	"github.com/troupe-dev/troupe/pkg/probe"
	"github.com/troupe-dev/troupe/pkg/process"
	"github.com/troupe-dev/troupe/pkg/telemetry"
)

// Limits of every server (guarantees S9, 2.11). The library's own defaults are not fit
// for an open port: unlimited streams, 16 MiB of headers, 120 s to connect.
const (
	MaxMessageBytes   = 4 << 20  // that a client may send
	maxInnerBytes     = 16 << 20 // that processes of the mesh may send each other
	maxHeaderBytes    = 16 << 10
	maxStreamsPerConn = 256
	connectionTimeout = 5 * time.Second
	keepaliveTime     = 10 * time.Second // least that grpc-go allows on clients
	keepaliveTimeout  = 3 * time.Second
	keepaliveMinTime  = 5 * time.Second
	proofAge          = 30 * time.Minute // after which who is connected has to prove itself anew, on a new connection
	proofGrace        = 15 * time.Minute // that calls have to end on the old one; a step may take 10 minutes
)

// Server is a gRPC server with health, and reflection where configured. Register the
// services on it, then run its Part.
type Server struct {
	*grpc.Server
	health   *health.Server
	draining context.CancelFunc
	board    *probe.Board // nil unless the health follows one
}

// Config is what servers differ in.
type Config struct {
	Reflection bool // serve gRPC reflection
	Inner      bool // only processes of the mesh call it: larger messages are taken

	// Identity is what a server inside the mesh proves, and asks of its callers; nil is plain
	// text. Callers are the roles that may call it, whatever they call.
	Identity *identity.Source
	Callers  []identity.Role
	// TLS is that of a server for clients, which has no Identity; nil is plain text.
	TLS credentials.TransportCredentials

	age time.Duration // in place of proofAge; for tests
}

// NewServer returns a server. Its overall health is NOT_SERVING until SetServing, or until
// a board that it follows is ready.
func NewServer(t *telemetry.Telemetry, cfg Config) (*Server, error) {
	chain, draining, err := newChain(t.Log, cfg)
	if err != nil {
		return nil, fmt.Errorf("rpc: %w", err)
	}
	maxBytes := MaxMessageBytes
	if cfg.Inner {
		maxBytes = maxInnerBytes
	}
	creds := cfg.TLS
	if creds == nil {
		creds = cfg.Identity.Server()
	}
	opts := append(serverOptions(chain),
		grpc.Creds(creds),
		grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithFilter(filters.Not(filters.HealthCheck())),
			otelgrpc.WithPropagators(propagation.TraceContext{}), // spans of one trace hang together across processes
			otelgrpc.WithMeterProvider(t.Metrics),
			otelgrpc.WithTracerProvider(t.Traces))),
		grpc.MaxRecvMsgSize(maxBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(maxStreamsPerConn),
		grpc.ConnectionTimeout(connectionTimeout),
		grpc.KeepaliveParams(keeping(cfg)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveMinTime, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true), // Stop returns when nobody works any more
	)
	s := &Server{Server: grpc.NewServer(opts...), health: health.NewServer(), draining: draining}
	s.SetServing(false)
	healthpb.RegisterHealthServer(s, s.health)
	if cfg.Reflection {
		reflection.Register(s)
	}
	return s, nil
}

// keeping is how connections are kept. One that proves something does not outlive its proof by
// much: certificates end, and CAs are replaced.
func keeping(cfg Config) keepalive.ServerParameters {
	params := keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}
	if cfg.Identity != nil {
		params.MaxConnectionAge, params.MaxConnectionAgeGrace = cmp.Or(cfg.age, proofAge), proofGrace
	}
	return params
}

// SetServing sets the health of the server and of every service registered so far.
func (s *Server) SetServing(serving bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		status = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
	for name := range s.GetServiceInfo() {
		s.health.SetServingStatus(name, status)
	}
}

// Follow makes the health follow the board, and the board know when the server stops.
func (s *Server) Follow(board *probe.Board) {
	s.board = board
	board.OnChange(s.SetServing)
}

// Part serves on the listener. When it stops, health turns NOT_SERVING for good, calls in
// flight may end within drain, and then they are cancelled.
func (s *Server) Part(lis net.Listener, drain time.Duration) process.Part {
	return process.Part{Name: "grpc " + lis.Addr().String(), Grace: drain + connectionTimeout, Run: func(ctx context.Context, ready func()) error {
		served := make(chan error, 1)
		go func() { served <- s.Serve(lis) }()
		ready()
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
		}
		if s.board != nil {
			s.board.Set("grpc", errors.New("stopping"))
		}
		s.health.Shutdown()
		s.draining()
		// GracefulStop waits for calls without bound; Stop ends it.
		force := time.AfterFunc(drain, s.Stop)
		defer force.Stop()
		s.GracefulStop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil
	}}
}

// Listen opens a TCP port, with an error that says what to do when it is taken. It is closed
// again, and the error returned, when one of those that permit it does not.
func Listen(flag, addr string, permit ...func(flag string, at net.Addr) error) (net.Listener, error) {
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot listen on %s: %w; choose another address, or 127.0.0.1:0 for any free port", flag, addr, err)
	}
	for _, permitted := range permit {
		if err := permitted(flag, lis.Addr()); err != nil {
			return nil, errors.Join(err, lis.Close())
		}
	}
	return lis, nil
}
