package dispatch

import (
	"cmp"
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/lifecycle"
	"github.com/troupe-dev/troupe/pkg/registry"
	"github.com/troupe-dev/troupe/pkg/telemetry"
	"github.com/troupe-dev/troupe/pkg/wire"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
)

// Pool holds one connection per worker address. Safe for concurrent use.
type Pool struct {
	telemetry *telemetry.Telemetry
	dial      func(target string, t *telemetry.Telemetry, repeatable ...string) (*grpc.ClientConn, error)

	mu    sync.Mutex
	conns map[string]*pooled
}

type pooled struct {
	*grpc.ClientConn
	users int
	gone  bool // the address is no longer registered; closed with the last user
}

// NewPool returns an empty pool. dial makes its connections.
func NewPool(t *telemetry.Telemetry, dial func(string, *telemetry.Telemetry, ...string) (*grpc.ClientConn, error)) *Pool {
	return &Pool{telemetry: t, dial: dial, conns: map[string]*pooled{}}
}

// connectTime is how long a worker may take to answer a connection.
const connectTime = time.Second

// Get returns a connection that is up. When it cannot be had within a second, nothing was
// sent. The caller calls release once. Modes: system_network.
func (p *Pool) Get(ctx context.Context, address string) (conn *grpc.ClientConn, release func(), err error) {
	p.mu.Lock()
	c, ok := p.conns[address]
	if !ok {
		made, err := p.dial("passthrough:///"+address, p.telemetry)
		if err != nil {
			p.mu.Unlock()
			return nil, nil, err
		}
		c = &pooled{ClientConn: made}
		p.conns[address] = c
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
			return c.ClientConn, release, nil
		case connectivity.Idle:
			c.Connect()
		case connectivity.TransientFailure:
			c.ResetConnectBackoff()
			if state == c.GetState() {
				release()
				return nil, nil, unreachable(address, nil)
			}
		default: // it will change by itself
		}
		if !c.WaitForStateChange(ctx, state) {
			release()
			return nil, nil, unreachable(address, ctx.Err())
		}
	}
}

func unreachable(address string, cause error) error {
	return failure.Newf(failure.SystemNetwork, "dispatch", "the worker at %s cannot be reached", address).Because(cause)
}

func (p *Pool) release(c *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.users--
	if c.gone && c.users == 0 {
		_ = c.Close()
	}
}

// Keep closes the connections to addresses that are not among the given ones, each once
// its last step has ended: a worker that drains is deregistered and still at work.
func (p *Pool) Keep(addresses map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, c := range p.conns {
		if addresses[address] {
			continue
		}
		delete(p.conns, address)
		c.gone = true
		if c.users == 0 {
			_ = c.Close()
		}
	}
}

// Health asks the worker at the address of an instance whether it is that one, and takes
// steps or may again. Another that answers there says that this one is not. It takes 2 s at
// most.
func (p *Pool) Health(ctx context.Context, in registry.Instance) routing.Health {
	conn, release, err := p.Get(ctx, in.Address)
	if err != nil {
		return routing.Unreachable
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	resp, err := troupev1.NewLifecycleServiceClient(conn).GetState(ctx, &troupev1.GetStateRequest{})
	status := resp.GetStatus()
	if err != nil || cmp.Or(status.GetInstanceId(), in.ID) != in.ID || cmp.Or(status.GetAgent(), in.Agent) != in.Agent {
		return routing.Unreachable
	}
	state, lost := wire.StateFromProto(status.GetState()), status.GetLease() == troupev1.LeaseState_LEASE_STATE_EXPIRED
	if state == lifecycle.ShuttingDown || state == lifecycle.Terminated || lost { // lost: until it is registered anew
		return routing.NotServing
	}
	return routing.Serving
}

// Close closes all connections; steps that run break off.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, c := range p.conns {
		delete(p.conns, address)
		_ = c.Close()
	}
}
