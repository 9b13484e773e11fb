// Package clientport opens the gRPC port of the orchestrator, which clients and workers call. It authenticates
// callers, limits their request rates, and restricts each worker to its own turns.
package clientport

import (
	"errors"
	"fmt"
	"net"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/bearer"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/rate"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/scope"
)

// Config has the settings of the client port. The tags define flags of the orchestrator.
type Config struct {
	GRPCAddr   string `name:"grpc-addr" help:"Address to serve gRPC on." default:"127.0.0.1:7400" env:"TROUPE_GRPC_ADDR"`
	Reflection bool   `help:"Serve gRPC reflection." env:"TROUPE_REFLECTION"`

	Rates           string `help:"YAML file with call rates by class (empty means the defaults)." env:"TROUPE_RATES" type:"path" default:"" placeholder:"FILE"`
	PeerConnections int    `help:"Connections per IPv4 address or IPv6 /64 (0 means no limit, for a proxy)." default:"32" env:"TROUPE_PEER_CONNECTIONS"`

	ClientTLS identity.EdgeConfig `embed:""`
	Clients   bearer.Config       `embed:""`
}

// Check returns an error that names the first invalid setting.
func (c *Config) Check() error {
	if c.PeerConnections < 0 {
		return fmt.Errorf("--peer-connections: %d is below zero; 0 is any number", c.PeerConnections)
	}
	return c.Clients.Check()
}

// Port is an open client port. NewServer creates the gRPC server for it.
type Port struct {
	Listener net.Listener
	// Certificate is the certificate that clients see. The caller of Open watches its files for changes.
	Certificate *identity.EdgeSource

	cfg       Config
	clients   *bearer.Authenticator
	telemetry *telemetry.Telemetry
}

// Open reads the certificate and the client tokens, and opens the Listener, which the caller closes. With
// plaintext set, other machines may connect without TLS.
func Open(cfg Config, network rpc.Network, plaintext bool, t *telemetry.Telemetry) (*Port, error) {
	p := &Port{cfg: cfg, telemetry: t}
	var err error
	if p.Certificate, err = cfg.ClientTLS.Open(t.Log); err != nil {
		return nil, err
	}
	if p.clients, err = bearer.Open(cfg.Clients, t.Log); err != nil {
		return nil, err
	}
	meter := t.Metrics.Meter("troupe/identity")
	if err := errors.Join(p.Certificate.RegisterMetrics(meter), p.clients.RegisterMetrics(meter)); err != nil {
		return nil, err
	}
	p.Listener, err = network.Listen("--grpc-addr", cfg.GRPCAddr, cfg.ClientTLS.CheckAddress(plaintext), cfg.Clients.CheckAddress)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Guard has what the port needs to decide which calls an authenticated worker may make.
type Guard struct {
	Credentials *turncred.Authority // verifies the turn credentials of workers (nil when the mesh has no identities)
	FindTrace   scope.FindTrace
	TraceStatus scope.TraceStatus
	CheckBarred func(caller identity.Principal, method string) error
}

// NewServer returns a gRPC server for the port. No services are registered on it yet.
func (p *Port) NewServer(g Guard) (*rpc.Server, error) {
	rates, err := rate.Load(p.cfg.Rates, rate.Defaults())
	if err != nil {
		return nil, fmt.Errorf("--rates: %w", err)
	}
	return rpc.NewServer(p.telemetry, rpc.Config{
		Reflection: p.cfg.Reflection, TLS: p.Certificate.Credentials(), Rates: rate.New(rates), PeerConnections: p.cfg.PeerConnections,
		Authenticate: turncred.Authenticate(g.Credentials, p.clients.Authenticate),
		Scope:        scope.New(g.Credentials, g.FindTrace, g.TraceStatus), CheckBarred: g.CheckBarred,
	})
}
