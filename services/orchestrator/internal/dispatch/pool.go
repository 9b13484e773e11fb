package dispatch

import (
	"cmp"
	"context"
	"sync"
	"time"

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

// Pool holds one connection per worker address, and agent that it is registered for. Safe for
// concurrent use.
type Pool struct {
	telemetry *telemetry.Telemetry
	dial      func(target string, t *telemetry.Telemetry, repeatable ...string) (*grpc.ClientConn, error)

	mu    sync.Mutex
	self  *identity.Source
	conns map[place]*pooled

	impostors map[place]string // why whoever is there is not a worker of the agent
}

// place is where an agent is said to be. A connection that proved to be one agent's is never
// used for another's, whoever registers the same address.
type place struct{ address, agent string }

type pooled struct {
	*grpc.ClientConn
	creds *identity.Credentials // nil in plain text
	users int
	gone  bool // the address is no longer registered; closed with the last user
}

// NewPool returns an empty pool. dial makes its connections.
func NewPool(t *telemetry.Telemetry, dial func(string, *telemetry.Telemetry, ...string) (*grpc.ClientConn, error)) *Pool {
	return &Pool{telemetry: t, dial: dial, conns: map[place]*pooled{}, impostors: map[place]string{}}
}

// UseIdentity has every connection that is made from now on prove both sides: this one by the
// source, and the worker by a certificate of the agent that it is registered for (S16). A nil
// source leaves them in plain text.
func (p *Pool) UseIdentity(self *identity.Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.self = self
}

// connect is called with the lock held.
func (p *Pool) connect(to place) (_ *pooled, err error) {
	c, target := &pooled{}, "passthrough:///"+to.address
	if p.self == nil {
		c.ClientConn, err = p.dial(target, p.telemetry)
		return c, err
	}
	c.creds = p.self.Client(identity.Worker, to.agent)
	c.ClientConn, err = rpc.DialWith(c.creds, target, p.telemetry)
	return c, err
}

// connectTime is how long a worker may take to answer a connection.
const connectTime = time.Second

// Get returns a connection to an instance that is up. When it cannot be had within a second,
// nothing was sent. The caller calls release once. Modes: system_network; policy_security when
// whoever is there does not prove to be a worker of the instance's agent.
func (p *Pool) Get(ctx context.Context, in registry.Instance) (conn *grpc.ClientConn, release func(), err error) {
	p.mu.Lock()
	to := place{in.Address, in.Agent}
	c, ok := p.conns[to]
	if !ok {
		if c, err = p.connect(to); err != nil {
			p.mu.Unlock()
			return nil, nil, err
		}
		p.conns[to] = c
	}
	c.users++
	p.mu.Unlock()
	release = sync.OnceFunc(func() { p.release(c) })

	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	for {
		state := c.GetState()
		switch state {
		case connectivity.Ready:
			p.proved(to)
			return c.ClientConn, release, nil
		case connectivity.Idle:
			c.Connect()
		case connectivity.TransientFailure:
			c.ResetConnectBackoff()
			if state == c.GetState() {
				release()
				return nil, nil, p.unreachable(c, to, nil)
			}
		default: // it will change by itself
		}
		if !c.WaitForStateChange(ctx, state) {
			release()
			return nil, nil, p.unreachable(c, to, ctx.Err())
		}
	}
}

func (p *Pool) unreachable(c *pooled, at place, cause error) error {
	if c.creds != nil {
		if why := c.creds.Refusal(); why != nil {
			p.doubt(at, why)
			return failure.Newf(failure.PolicySecurity, "dispatch", "the worker at %s does not prove to be one of agent %s, as which it is registered", at.address, at.agent).Because(why)
		}
	}
	return failure.Newf(failure.SystemNetwork, "dispatch", "the worker at %s cannot be reached", at.address).Because(cause)
}

func (p *Pool) release(c *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.users--
	if c.gone && c.users == 0 {
		_ = c.Close()
	}
}

// CloseExcept closes the connections to addresses that are not among the given ones, each once
// its last step has ended: a worker that drains is deregistered and still at work.
func (p *Pool) CloseExcept(addresses map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range p.impostors {
		if !addresses[at.address] {
			delete(p.impostors, at)
		}
	}
	for at, c := range p.conns {
		if addresses[at.address] {
			continue
		}
		delete(p.conns, at)
		c.gone = true
		if c.users == 0 {
			_ = c.Close()
		}
	}
}

// CheckHealth asks the worker at the address of an instance whether it is that one, and takes
// steps or may again. Another that answers there says that this one is not. It takes 2 s at
// most.
func (p *Pool) CheckHealth(ctx context.Context, in registry.Instance) instances.Health {
	conn, release, err := p.Get(ctx, in)
	if err != nil {
		return instances.Unreachable
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	resp, err := troupev1.NewLifecycleServiceClient(conn).GetState(ctx, &troupev1.GetStateRequest{})
	status := resp.GetStatus()
	if err != nil || cmp.Or(status.GetInstanceId(), in.ID) != in.ID || cmp.Or(status.GetAgent(), in.Agent) != in.Agent {
		return instances.Unreachable
	}
	state, lost := instancewire.StateFromProto(status.GetState()), status.GetLease() == troupev1.LeaseState_LEASE_STATE_EXPIRED
	if state == lifecycle.ShuttingDown || state == lifecycle.Terminated || lost { // lost: until it is registered anew
		return instances.NotServing
	}
	return instances.Serving
}

// Close closes all connections; steps that run break off.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, c := range p.conns {
		delete(p.conns, at)
		_ = c.Close()
	}
}
