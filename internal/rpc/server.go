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
	identity *identity.Source

	telemetry *telemetry.Telemetry
	perPeer   int
}

// Config is what servers differ in.
type Config struct {
	Reflection bool // serve gRPC reflection
	Inner      bool // only processes of the mesh call it: larger messages are taken

	// Identity is what a server inside the mesh proves, and asks of its callers; nil is plain
	// text.
	Identity *identity.Source
	// Authenticate says who sends a call, by more than its certificate. Nil: who the certificate
	// proves, and without an Identity anybody.
	Authenticate Authenticate
	// Scope says whether a call may touch what its request names, before its handler does. It is
	// asked for each request, of a stream for the first, once that fits the rules of the .proto.
	// Nil: every call may that may be made.
	Scope Scope
	// Barred says why a caller who may call the method may call nothing at the moment, as those of
	// an agent that is quarantined (S18). It is asked for each call, with its full method. Nil: nobody
	// is barred.
	Barred func(caller identity.Principal, method string) error
	// Usual reports whether a call that was refused is no news: a healthy mesh has such, and the log
	// has them at level debug. Nil: all are told at info.
	Usual func(method string, err error) bool
	// Instance is the name of the worker that serves, for the audit log: calls that start, pause or
	// stop it do not name it. Empty: it is no worker.
	Instance string
	// TLS is that of a server for clients, which has no Identity; nil is plain text.
	TLS credentials.TransportCredentials

	// Rates is how often callers may call; nil is as often as they like.
	Rates *rate.Limiter
	// PeerConnections is how many connections one address may have; 0 is any number.
	PeerConnections int

	age time.Duration // in place of that of keeping; for tests
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
		creds = frames{creds, cfg.Rates}
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
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { // behind the chain, which refuses what is nobody's (S2)
			return failure.New(failure.AgentContract, "call", "this service does not serve the method")
		}),
	)
	if cfg.Rates != nil {
		opts = append(opts, grpc.InTapHandle(counted(cfg.Rates)))
	}
	s := &Server{Server: grpc.NewServer(opts...), health: health.NewServer(), draining: draining, identity: cfg.Identity, telemetry: t, perPeer: cfg.PeerConnections}
	s.SetServing(false)
	healthpb.RegisterHealthServer(s, s.health)
	if cfg.Reflection {
		reflection.Register(s)
	}
	return s, nil
}

// keeping is how connections are kept. One that proves something does not outlive its proof by
// much: certificates end, and CAs are replaced. Certificates are renewed when two thirds of their
// life are over, so that one that is as old as that is never the last of its connections.
func keeping(cfg Config) keepalive.ServerParameters {
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

// conditionPanics is that of a server whose process does not panic all the time.
const conditionPanics = "panics"

// calm tells the board whether there were too many panics lately.
func (s *Server) calm(tooMany bool) {
	var err error
	if tooMany {
		err = errors.New("5 within a minute; the log has them")
	}
	s.board.Set(conditionPanics, err)
}

// Part serves on the listener, and has the log say when the certificate ends. When it stops, health turns NOT_SERVING for good, calls in
// flight may end within drain, and then they are cancelled.
func (s *Server) Part(lis net.Listener, drain time.Duration) process.Part {
	return process.Part{Name: "grpc " + lis.Addr().String(), Grace: drain + connectionTimeout, Run: func(ctx context.Context, ready func()) error {
		if err := s.guarded(); err != nil {
			return err
		}
		if s.board != nil {
			defer s.telemetry.Panics.Follow(s.calm)()
		}
		lis := lis
		if s.perPeer > 0 {
			lis = newPerPeer(lis, s.perPeer, s.telemetry.Log)
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

// guarded reports a method that is registered and has no row in the table of who may call what:
// nobody could call it, and whoever added it should hear of that before anybody tries.
func (s *Server) guarded() error {
	for service, info := range s.GetServiceInfo() {
		for _, m := range info.Methods {
			if _, ok := authz.Roles("/" + service + "/" + m.Name); !ok {
				return fmt.Errorf("rpc: %s/%s has no row in internal/authz/table.go, so nobody may call it", service, m.Name)
			}
		}
	}
	return nil
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
