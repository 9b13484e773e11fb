package stores

import (
	"context"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/inmem"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/test/simulation/network"
	"github.com/troupe-dev/troupe/test/simulation/schedule"
)

// Times of registrations, as etcd and its client have them.
const (
	leaseTTL     = 15 * time.Second
	renewal      = leaseTTL / 3
	registryWait = time.Second // between two tries to reach the registry
)

// Directory is the registry that all processes share: the reference implementation, with leases that expire.
type Directory struct {
	*inmem.Registry

	mu     sync.Mutex
	leases map[*leased]struct{}
}

// leased is a registration under a lease.
type leased struct {
	registration registry.Registration
	expires      time.Time
}

// NewDirectory returns an empty registry.
func NewDirectory() *Directory {
	return &Directory{Registry: inmem.New(), leases: map[*leased]struct{}{}}
}

// ExpireUntil removes registrations whose lease has expired, until ctx ends.
func (d *Directory) ExpireUntil(ctx context.Context) {
	for retry.Sleep(ctx, time.Second) == nil {
		d.mu.Lock()
		for l := range d.leases {
			if time.Now().After(l.expires) {
				_ = l.registration.Close(ctx)
				delete(d.leases, l)
			}
		}
		d.mu.Unlock()
	}
}

// renew renews a lease and reports whether it still existed.
func (d *Directory) renew(l *leased) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.leases[l]
	l.expires = time.Now().Add(leaseTTL)
	return ok
}

func (d *Directory) add(r registry.Registration) *leased {
	l := &leased{r, time.Now().Add(leaseTTL)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leases[l] = struct{}{}
	return l
}

func (d *Directory) remove(ctx context.Context, l *leased) {
	d.mu.Lock()
	delete(d.leases, l)
	d.mu.Unlock()
	_ = l.registration.Close(ctx)
}

// remoteRegistry is the registry as one process reaches it.
type remoteRegistry struct {
	peer      *network.Peer
	directory *Directory
}

// For returns the registry as a process reaches it.
func (d *Directory) For(peer *network.Peer) registry.Registry { return remoteRegistry{peer, d} }

func (r remoteRegistry) call(ctx context.Context, method string, do func() error) error {
	return r.peer.Call(ctx, schedule.Registry, method, "", func(context.Context) error { return do() })
}

// Register implements registry.Registrar.
func (r remoteRegistry) Register(ctx context.Context, in registry.Instance) (registry.Registration, error) {
	g := &registration{remoteRegistry: r, instance: in, status: lifecycle.LeaseOK, changed: make(chan struct{})}
	for {
		err := g.register(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil || failure.Is(err, failure.AgentState, failure.UserInvalidInput) {
			return nil, err
		}
		_ = retry.Sleep(ctx, registryWait) // the loop checks ctx
	}
	keeping, stop := context.WithCancel(r.peer.Context())
	g.stop = stop
	go g.keep(keeping)
	return g, nil
}

// registration is a registration whose lease is renewed.
type registration struct {
	remoteRegistry
	stop context.CancelFunc

	mu       sync.Mutex
	instance registry.Instance
	lease    *leased
	renewed  time.Time
	status   lifecycle.Lease
	changed  chan struct{}
}

func (g *registration) register(ctx context.Context) error {
	return g.call(ctx, "register", func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.lease != nil && g.directory.renew(g.lease) { // the reply to an earlier try was lost
			g.renewed = time.Now()
			return g.lease.registration.SetState(ctx, g.instance.State)
		}
		stored, err := g.directory.Register(ctx, g.instance)
		if err == nil {
			g.lease, g.renewed = g.directory.add(stored), time.Now()
		}
		return err
	})
}

// keep renews the lease until ctx ends, and registers again when the lease has expired.
func (g *registration) keep(ctx context.Context) {
	for retry.Sleep(ctx, renewal) == nil {
		kept := false
		err := g.call(ctx, "renew lease", func() error {
			g.mu.Lock()
			defer g.mu.Unlock()
			kept = g.directory.renew(g.lease)
			return nil
		})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && time.Since(g.renewed) > leaseTTL:
			g.setStatus(lifecycle.LeaseUnknown)
		case err != nil:
		case kept:
			g.renewed = time.Now()
			g.setStatus(lifecycle.LeaseOK)
		default:
			g.setStatus(lifecycle.LeaseExpired)
			if g.register(ctx) == nil {
				g.setStatus(lifecycle.LeaseOK)
			}
		}
	}
}

func (g *registration) setStatus(s lifecycle.Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.status != s {
		g.status = s
		close(g.changed)
		g.changed = make(chan struct{})
	}
}

// SetState implements registry.Registration.
func (g *registration) SetState(ctx context.Context, s lifecycle.State) error {
	g.mu.Lock()
	g.instance.State = s
	g.mu.Unlock()
	return g.call(ctx, "set state", func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.lease.registration.SetState(ctx, s)
	})
}

// Lease implements registry.Registration.
func (g *registration) Lease() (lifecycle.Lease, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.status, g.changed
}

// Close implements registry.Registration.
func (g *registration) Close(ctx context.Context) error {
	g.stop()
	return g.call(ctx, "deregister", func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.directory.remove(ctx, g.lease)
		return nil
	})
}

// Watch implements registry.Watcher. When the registry cannot be reached, the watch begins anew with a list.
func (r remoteRegistry) Watch(ctx context.Context, apply func(registry.Update)) error {
	for ctx.Err() == nil {
		watching, stop := context.WithCancel(ctx)
		var broken error
		_ = r.directory.Watch(watching, func(u registry.Update) { // ends with watching
			broken = r.call(watching, "registry update", func() error { return nil })
			if broken != nil {
				stop()
				return
			}
			apply(u)
		})
		stop()
		if ctx.Err() == nil {
			apply(registry.Update{Unreachable: broken})
			_ = retry.Sleep(ctx, registryWait) // the loop checks ctx
		}
	}
	return nil
}

// SetDesired implements registry.DesiredStates.
func (r remoteRegistry) SetDesired(ctx context.Context, desires ...registry.DesiredState) error {
	return r.call(ctx, "set desired", func() error { return r.directory.SetDesired(ctx, desires...) })
}

// RemoveDesired implements registry.DesiredStates.
func (r remoteRegistry) RemoveDesired(ctx context.Context, key registry.Key) error {
	return r.call(ctx, "remove desired", func() error { return r.directory.RemoveDesired(ctx, key) })
}

// WatchDesiredStates implements registry.DesiredStates.
func (r remoteRegistry) WatchDesiredStates(ctx context.Context, apply func(map[registry.Key]registry.DesiredState)) error {
	return r.directory.WatchDesiredStates(ctx, apply)
}
