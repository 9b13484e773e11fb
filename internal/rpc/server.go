// Package rpc makes every gRPC server and every connection of the mesh, so that all have
// the same limits, keepalive, telemetry and chain of interceptors.
package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
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

	"github.com/troupe-dev/troupe/internal/authz"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/probe"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/rate"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Limits of every server (guarantees S9, 2.11). The library's own defaults are not fit
// for an open port: unlimited streams, 16 MiB of headers, 120 s to connect.
const (
	MaxMessageBytes   = 4 << 20  // from a client
	maxInnerBytes     = 16 << 20 // between processes of the mesh
	maxHeaderBytes    = 16 << 10
	maxStreamsPerConn = 256
	connectionTimeout = 5 * time.Second
	keepaliveTime     = 10 * time.Second // least that grpc-go allows on clients
	keepaliveTimeout  = 3 * time.Second
	keepaliveMinTime  = 5 * time.Second
	proofAge          = 30 * time.Minute // after which a client has to prove its identity anew, on a new connection
	proofGrace        = 15 * time.Minute // for calls on the old connection; a step may take 10 minutes
)

// Server is a gRPC server with health, and reflection where configured. Register the
// services on it, then run its Part.
type Server struct {
	*grpc.Server
	health   *health.Server
	draining context.CancelFunc
	board    *probe.Board // nil unless the health follows one
	identity *identity.Source

	telemetry *telemetry.Telemetry
	perPeer   int
}

// Config has the settings of a server.
type Config struct {
	Reflection bool // serve gRPC reflection
	Inner      bool // only processes of the mesh call it, so larger messages are accepted

	// Identity is the identity of a server inside the mesh, which also requires one of its callers (nil means
	// plain text).
	Identity *identity.Source
	// Authenticate returns the principal that sends a call (nil means Certified).
	Authenticate Authenticate
	// Scope checks whether a call may touch what its request names. It runs for each valid request, and for the first
	// one of a stream (nil means that every call may).
	Scope Scope
	// Barred returns an error for a caller that may call nothing at the moment, such as the workers of a quarantined
	// agent (S18). It runs for each call, with its full method (nil means that no caller is barred).
	Barred func(caller identity.Principal, method string) error
	// Usual reports whether a rejected call is normal in a healthy mesh. Such calls are logged at level debug instead of
	// info (nil means none).
	Usual func(method string, err error) bool
	// Instance is the name of the serving worker, for the audit log, because calls that start, pause or stop a worker do
	// not name it (empty for other processes).
	Instance string
	// TLS has the credentials of a server for clients, which has no Identity (nil means plain text).
	TLS credentials.TransportCredentials

	// Rates limits how often callers may call (nil means no limit).
	Rates *rate.Limiter
	// PeerConnections limits the connections of one address (0 means no limit).
	PeerConnections int

	age time.Duration // of a connection, for tests (0 means the default)
}

// NewServer returns a server. Its overall health is NOT_SERVING until SetServing, or until
// a board that it follows is ready.
func NewServer(t *telemetry.Telemetry, cfg Config) (*Server, error) {
	chain, draining, err := newChain(t, cfg)
	if err != nil {
		return nil, fmt.Errorf("rpc: %w", err)
	}
	if err := cfg.Identity.Measure(t.Metrics.Meter("troupe/identity")); err != nil {
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
	if cfg.Rates != nil {
		creds = resetCredentials{creds, cfg.Rates}
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
		grpc.KeepaliveParams(keepaliveParams(cfg)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveMinTime, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true), // Stop returns when all handlers have returned
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { // after the interceptors, which reject unknown methods (S2)
			return failure.New(failure.AgentContract, "call", "this service does not serve the method")
		}),
	)
	if cfg.Rates != nil {
		opts = append(opts, grpc.InTapHandle(streamRateTap(cfg.Rates)))
	}
	s := &Server{
		Server: grpc.NewServer(opts...), health: health.NewServer(), draining: draining,
		identity: cfg.Identity, telemetry: t, perPeer: cfg.PeerConnections,
	}
	s.SetServing(false)
	healthpb.RegisterHealthServer(s, s.health)
	if cfg.Reflection {
		reflection.Register(s)
	}
	return s, nil
}

// keepaliveParams returns how long connections live. A connection with a certificate does not outlive it by much, because
// certificates expire and CAs are replaced. Certificates are renewed after two thirds of their life, so a connection is
// always replaced by one with a newer certificate.
func keepaliveParams(cfg Config) keepalive.ServerParameters {
	params := keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}
	if cfg.Identity != nil {
		params.MaxConnectionAge, params.MaxConnectionAgeGrace = cmp.Or(cfg.age, min(proofAge, cfg.Identity.Life()/4)), proofGrace
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

// conditionPanics is the condition of a board that fails while the process panics too often.
const conditionPanics = "panics"

// setPanicCondition tells the board whether the process panicked too often lately.
func (s *Server) setPanicCondition(tooMany bool) {
	var err error
	if tooMany {
		err = errors.New("5 within a minute; the log has them")
	}
	s.board.Set(conditionPanics, err)
}

// Part serves on the listener and logs when the certificate is about to expire. When it stops, health becomes NOT_SERVING
// for good. Calls in flight may finish within drain, and then they are cancelled.
func (s *Server) Part(lis net.Listener, drain time.Duration) process.Part {
	return process.Part{Name: "grpc " + lis.Addr().String(), Grace: drain + connectionTimeout, Run: func(ctx context.Context, ready func()) error {
		if err := s.checkMethods(); err != nil {
			return err
		}
		if s.board != nil {
			defer s.telemetry.Panics.Follow(s.setPanicCondition)()
		}
		lis := lis
		if s.perPeer > 0 {
			lis = newPeerLimiter(lis, s.perPeer, s.telemetry.Log)
		}
		watched, unwatch := context.WithCancel(ctx)
		var watching sync.WaitGroup
		watching.Go(func() { identity.Watch(watched, s.identity) })
		defer watching.Wait()
		defer unwatch()
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

// checkMethods returns an error for a registered method without a row in the table of permissions. No caller could call
// it, so the server does not start.
func (s *Server) checkMethods() error {
	for service, info := range s.GetServiceInfo() {
		for _, m := range info.Methods {
			if _, ok := authz.Roles("/" + service + "/" + m.Name); !ok {
				return fmt.Errorf("rpc: %s/%s has no row in internal/authz/table.go, so no caller may call it; add one", service, m.Name)
			}
		}
	}
	return nil
}

// Listen opens a TCP port. Its error says what to do when the port is taken. If a permit function rejects the address,
// Listen closes the port and returns that error.
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
