// Package connection pools the connections to workers. It verifies that each connection leads to the expected
// worker.
package connection

import (
	"cmp"
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
)

// Pool holds one connection for each endpoint. Safe for concurrent use.
type Pool struct {
	telemetry *telemetry.Telemetry
	dial      func(target string, t *telemetry.Telemetry, repeatable ...string) (*grpc.ClientConn, error)

	mu       sync.Mutex
	identity *identity.Source
	conns    map[endpoint]*pooledConn

	identityErrors map[endpoint]string // why the process at an endpoint is not a worker of the agent
}

// endpoint is the address of a worker and the agent that it registered for. A connection that was verified for one
// agent is never used for another, even if both registered the same address.
type endpoint struct{ address, agent string }

type pooledConn struct {
	*grpc.ClientConn
	creds          *identity.Credentials // nil in plain text
	userCount      int
	isUnregistered bool // the address is no longer registered, so the last user closes the connection
}

// NewPool returns an empty pool. It uses dial for plain-text connections.
func NewPool(t *telemetry.Telemetry, dial func(string, *telemetry.Telemetry, ...string) (*grpc.ClientConn, error)) *Pool {
	return &Pool{telemetry: t, dial: dial, conns: map[endpoint]*pooledConn{}, identityErrors: map[endpoint]string{}}
}

// UseIdentity makes every new connection use mutual TLS. This process presents the certificate of source. The
// worker needs a certificate of the agent that it registered for (guarantee S16). If source is nil, connections stay in
// plain text.
func (p *Pool) UseIdentity(self *identity.Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.identity = self
}

// connect opens a connection to an endpoint. The caller holds the lock.
func (p *Pool) connect(to endpoint) (_ *pooledConn, err error) {
	c, target := &pooledConn{}, "passthrough:///"+to.address
	if p.identity == nil {
		c.ClientConn, err = p.dial(target, p.telemetry)
		return c, err
	}
	c.creds = p.identity.ClientCredentials(identity.Worker, to.agent)
	c.ClientConn, err = rpc.DialWith(c.creds, target, p.telemetry)
	return c, err
}

// Timeout is how long Get waits for a connection.
const Timeout = time.Second

// Get returns a connection to an instance that is ready for calls. If it fails, nothing was sent to the instance.
// The caller calls release once. Get fails with system_network, or with policy_security when the process does not
// prove to be a worker of the instance's agent.
func (p *Pool) Get(ctx context.Context, in registry.Instance) (conn *grpc.ClientConn, release func(), err error) {
	p.mu.Lock()
	to := endpoint{in.Address, in.Agent}
	c, ok := p.conns[to]
	if !ok {
		if c, err = p.connect(to); err != nil {
			p.mu.Unlock()
			return nil, nil, err
		}
		p.conns[to] = c
	}
	c.userCount++
	p.mu.Unlock()
	release = sync.OnceFunc(func() { p.release(c) })

	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	for {
		state := c.GetState()
		switch state {
		case connectivity.Ready:
			p.clearIdentityError(to)
			return c.ClientConn, release, nil
		case connectivity.Idle:
			c.Connect()
		case connectivity.TransientFailure:
			c.ResetConnectBackoff()
			if state == c.GetState() {
				release()
				return nil, nil, p.unreachableError(c, to, nil)
			}
		default: // the connection recovers by itself
		}
		if !c.WaitForStateChange(ctx, state) {
			release()
			return nil, nil, p.unreachableError(c, to, ctx.Err())
		}
	}
}

func (p *Pool) unreachableError(c *pooledConn, at endpoint, cause error) error {
	if c.creds != nil {
		if why := c.creds.HandshakeError(); why != nil {
			p.recordIdentityError(at, why)
			return failure.Newf(failure.PolicySecurity, "dispatch",
				"the worker at %s does not prove to be one of agent %s, as which it is registered", at.address, at.agent).Because(why)
		}
	}
	return failure.Newf(failure.SystemNetwork, "dispatch", "the worker at %s cannot be reached", at.address).Because(cause)
}

func (p *Pool) release(c *pooledConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.userCount--
	if c.isUnregistered && c.userCount == 0 {
		_ = c.Close()
	}
}

// CloseExcept closes the connections to all addresses except the given ones. Each is closed when its last step has
// ended, because a draining worker is no longer registered but may still run steps.
func (p *Pool) CloseExcept(addresses map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range p.identityErrors {
		if !addresses[at.address] {
			delete(p.identityErrors, at)
		}
	}
	for at, c := range p.conns {
		if addresses[at.address] {
			continue
		}
		delete(p.conns, at)
		c.isUnregistered = true
		if c.userCount == 0 {
			_ = c.Close()
		}
	}
}

// CheckHealth asks the worker at the address of an instance whether it is this instance and whether it accepts
// steps, now or later. An answer from another instance counts as unreachable. It takes at most 2 s.
func (p *Pool) CheckHealth(ctx context.Context, in registry.Instance) instances.Health {
	conn, release, err := p.Get(ctx, in)
	if err != nil {
		return instances.Unreachable
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	resp, err := troupev1.NewLifecycleServiceClient(conn).GetState(ctx, &troupev1.GetStateRequest{})
	status := resp.GetStatus()
	if err != nil || cmp.Or(status.GetInstanceId(), in.ID) != in.ID || cmp.Or(status.GetAgent(), in.Agent) != in.Agent {
		return instances.Unreachable
	}
	state, lost := instancewire.StateFromProto(status.GetState()), status.GetLease() == troupev1.LeaseState_LEASE_STATE_EXPIRED
	if state == lifecycle.ShuttingDown || state == lifecycle.Terminated || lost { // it lost its lease, and serves once it has registered again
		return instances.NotServing
	}
	return instances.Serving
}

// Log returns the logger of the pool.
func (p *Pool) Log() *zap.Logger { return p.telemetry.Log }

// Close closes all connections, which interrupts running steps.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, c := range p.conns {
		delete(p.conns, at)
		_ = c.Close()
	}
}
