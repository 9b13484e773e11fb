// Package rpc creates every gRPC server and client connection of the mesh, so that all of them have the same
// limits, keepalive, telemetry and interceptors.
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

// These are the limits of every server (guarantees S9, 2.11). The library's defaults are too generous for an open
// port: unlimited streams, 16 MiB of headers, 120 s to connect.
const (
	MaxMessageBytes         = 4 << 20  // limit of a message from a client
	maxInternalMessageBytes = 16 << 20 // limit of a message between processes of the mesh
	maxHeaderBytes          = 16 << 10
	maxStreamsPerConn       = 256
	connectionTimeout       = 5 * time.Second
	keepaliveTime           = 10 * time.Second // the shortest interval that grpc-go allows clients
	keepaliveTimeout        = 3 * time.Second
	minClientPingInterval   = 5 * time.Second
	defaultConnectionAge    = 30 * time.Minute // a client must then prove its identity again on a new connection
	connectionAgeGrace      = 15 * time.Minute // for calls that still run on the old connection; a step may take 10 minutes
)

// Server is a gRPC server with the health service, and with reflection if configured. Register services on it,
// then run its ProcessPart.
type Server struct {
	*grpc.Server
	health        *health.Server
	startDraining context.CancelFunc
	board         *probe.Board // board that the health follows (nil if none)
	identity      *identity.Source

	telemetry       *telemetry.Telemetry
	peerConnections int
}

// Config holds the settings of a Server.
type Config struct {
	Reflection bool // serve gRPC reflection
	Internal   bool // only processes of the mesh call the server, so larger messages are accepted

	// Identity is the identity of a server inside the mesh. The server then requires its callers to prove an
	// identity, too (nil means plain text).
	Identity *identity.Source
	// Authenticate determines the principal of a call (nil means PrincipalFromCertificate).
	Authenticate Authenticator
	// Scope checks whether a caller may access the object of a request. It runs for each valid unary request, and
	// for the first request of a stream (nil means that every call is allowed).
	Scope ScopeChecker
	// CheckBarred returns an error for a caller that may call nothing at the moment, such as a worker of a
	// quarantined agent (guarantee S18). It gets the caller and the full method of each call (nil means that no caller is
	// barred).
	CheckBarred func(caller identity.Principal, method string) error
	// IsExpectedError reports whether an error of a method is normal in a healthy mesh. The server logs such calls
	// at level debug instead of info (nil means that no error is expected).
	IsExpectedError func(method string, err error) bool
	// Instance is the id of the serving worker, for the audit log. Calls that start, pause or stop a worker do not
	// name it (empty for other processes).
	Instance string
	// TLS holds the TLS credentials of a server for clients, which has no Identity (nil means plain text).
	TLS credentials.TransportCredentials

	// Rates limits how often callers may call (nil means no limit).
	Rates *rate.Limiter
	// PeerConnections limits the connections of one address (0 means no limit).
	PeerConnections int

	maxConnectionAge time.Duration // set by tests (0 means the default)
}

// NewServer returns a server. Its health is NOT_SERVING until SetServing is called, or until a followed board is
// ready.
func NewServer(t *telemetry.Telemetry, cfg Config) (*Server, error) {
	chain, draining, err := newChain(t, cfg)
	if err != nil {
		return nil, fmt.Errorf("rpc: %w", err)
	}
	if err := cfg.Identity.RegisterMetrics(t.Metrics.Meter("troupe/identity")); err != nil {
		return nil, fmt.Errorf("rpc: %w", err)
	}
	maxBytes := MaxMessageBytes
	if cfg.Internal {
		maxBytes = maxInternalMessageBytes
	}
	creds := cfg.TLS
	if creds == nil {
		creds = cfg.Identity.ServerCredentials()
	}
	if cfg.Rates != nil {
		creds = resetLimitingCredentials{creds, cfg.Rates}
	}
	opts := append(serverOptions(chain),
		grpc.Creds(creds),
		grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithFilter(filters.Not(filters.HealthCheck())),
			otelgrpc.WithPropagators(propagation.TraceContext{}), // links the spans of one trace across processes
			otelgrpc.WithMeterProvider(t.Metrics),
			otelgrpc.WithTracerProvider(t.Traces))),
		grpc.MaxRecvMsgSize(maxBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(maxStreamsPerConn),
		grpc.ConnectionTimeout(connectionTimeout),
		grpc.KeepaliveParams(keepaliveParams(cfg)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPingInterval, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true), // Stop returns when all handlers have returned
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { // runs after the interceptors, which reject unknown methods (guarantee S2)
			return failure.New(failure.AgentContract, "call", "this service does not have the method")
		}),
	)
	if cfg.Rates != nil {
		opts = append(opts, grpc.InTapHandle(streamRateTap(cfg.Rates)))
	}
	s := &Server{
		Server: grpc.NewServer(opts...), health: health.NewServer(), startDraining: draining,
		identity: cfg.Identity, telemetry: t, peerConnections: cfg.PeerConnections,
	}
	s.SetServing(false)
	healthpb.RegisterHealthServer(s, s.health)
	if cfg.Reflection {
		reflection.Register(s)
	}
	return s, nil
}

// keepaliveParams returns how long connections live. Certificates expire and CAs are replaced, so a connection
// must not outlive its certificate by much. A certificate is renewed after two thirds of its life, so the client
// has a newer one when it reconnects.
func keepaliveParams(cfg Config) keepalive.ServerParameters {
	params := keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}
	if cfg.Identity != nil {
		params.MaxConnectionAge, params.MaxConnectionAgeGrace = cmp.Or(cfg.maxConnectionAge, min(defaultConnectionAge,
			cfg.Identity.ValidityPeriod()/4)), connectionAgeGrace
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

// FollowBoard makes the server's health equal the readiness of the board. It also makes the board not ready when
// the server stops.
func (s *Server) FollowBoard(board *probe.Board) {
	s.board = board
	board.OnChange(s.SetServing)
}

// conditionPanics is the board's condition that fails while the process panics too often.
const conditionPanics = "panics"

// setPanicCondition updates the board's condition for recent panics.
func (s *Server) setPanicCondition(tooMany bool) {
	var err error
	if tooMany {
		err = errors.New("5 panics within a minute; see the log")
	}
	s.board.Set(conditionPanics, err)
}

// ProcessPart returns a part that serves on the listener and logs when the certificate is about to expire. When it
// stops, the health becomes NOT_SERVING for good. Running calls may finish within drain; then they are cancelled.
func (s *Server) ProcessPart(lis net.Listener, drain time.Duration) process.Part {
	return process.Part{Name: "grpc " + lis.Addr().String(), Grace: drain + connectionTimeout, Run: func(ctx context.Context, ready func()) error {
		if err := s.checkMethods(); err != nil {
			return err
		}
		if s.board != nil {
			defer s.telemetry.Panics.OnChange(s.setPanicCondition)()
		}
		lis := lis
		if s.peerConnections > 0 {
			lis = newPeerLimiter(lis, s.peerConnections, s.telemetry.Log)
		}
		watched, unwatch := context.WithCancel(ctx)
		var watching sync.WaitGroup
		watching.Go(func() { identity.WatchCertificates(watched, s.identity) })
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
		s.startDraining()
		// GracefulStop waits for running calls without a limit. Calling Stop ends that wait.
		force := time.AfterFunc(drain, s.Stop)
		defer force.Stop()
		s.GracefulStop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil
	}}
}

// checkMethods returns an error for a registered method that is missing from the permission table. Nothing could
// call the method, so the server does not start.
func (s *Server) checkMethods() error {
	for service, info := range s.GetServiceInfo() {
		for _, m := range info.Methods {
			if _, ok := authz.RolesFor("/" + service + "/" + m.Name); !ok {
				return fmt.Errorf("rpc: %s/%s has no row in internal/authz/table.go, so no caller may call it; add one", service, m.Name)
			}
		}
	}
	return nil
}
