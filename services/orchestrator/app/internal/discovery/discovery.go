// Package discovery lets the orchestrator find and reach the instances of agents. It combines the etcd registry,
// the instance cache, the connections to instances, and the operator that reconciles their desired state.
package discovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/connection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/operate"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
)

// Config has the settings of discovery. The tags define flags of the orchestrator.
type Config struct {
	Etcd      []string      `help:"Addresses of etcd: https://host:port, or host:port for plain text." default:"127.0.0.1:2379" env:"TROUPE_ETCD"`
	RouteWait time.Duration `help:"How long a step waits for an instance while none of its agent works here or is paused." default:"5s" env:"TROUPE_ROUTE_WAIT"`
	Snapshot  string        `help:"File of the last known instances, for starts without etcd." env:"TROUPE_SNAPSHOT" type:"path" default:"" placeholder:"FILE"`

	EtcdSecurity etcdregistry.Security `embed:"" prefix:"etcd-"`
}

// Check returns an error that names the first invalid setting.
func (c *Config) Check() error {
	if c.RouteWait < 0 {
		return fmt.Errorf("--route-wait: %s is below zero", c.RouteWait)
	}
	if len(c.Etcd) == 0 {
		return fmt.Errorf("--etcd: at least one address is needed")
	}
	return nil
}

// Discovery finds the instances of agents and keeps connections to them.
type Discovery struct {
	Instances  *instances.Cache
	Pool       *connection.Pool
	Operator   *operate.Operator
	Dispatcher *dispatch.Dispatcher

	snapshotPath string
	registry     registry.Registry
	closers      process.Closers
}

// Environment replaces what a Discovery uses outside of its process. The zero value is TCP and etcd.
type Environment struct {
	Network  rpc.Network
	Registry registry.Registry // nil means etcd
}

// Open returns a Discovery, which knows no instances until its Parts run. onChange is called after each change of
// the instances and must not use the Discovery. Its argument reports whether the instances were ever known, from the
// registry or from a snapshot. The caller closes the Discovery.
func Open(cfg Config, env Environment, self *identity.Source, t *telemetry.Telemetry, onChange func(known bool)) (*Discovery, error) {
	d := &Discovery{snapshotPath: cfg.Snapshot, registry: env.Registry}
	if d.registry == nil {
		if err := d.openEtcd(cfg, self, t); err != nil {
			return nil, err
		}
	}
	pool := connection.NewPool(t, env.Network.Dial)
	pool.UseIdentity(self)
	cache := instances.New(t.Log, func(known bool, addresses map[string]bool) {
		pool.CloseExcept(addresses)
		onChange(known)
	})
	cache.SetProbe(pool.CheckHealth)
	cache.Desired().WithholdUntilKnown()
	d.Instances, d.Pool, d.Operator, d.Dispatcher = cache, pool, operate.New(cache, d.registry, pool, t.Log), dispatch.New(cache, pool, cfg.RouteWait)
	d.closers.Add(process.CloserFunc(pool.Close))
	d.closers.Add(process.CloserFunc(d.Dispatcher.Close))
	if err := registerMetrics(t, cache); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// openEtcd opens the registry in etcd.
func (d *Discovery) openEtcd(cfg Config, self *identity.Source, t *telemetry.Telemetry) error {
	creds, err := cfg.EtcdSecurity.Credentials(cfg.Etcd, self, t.Log)
	if err != nil {
		return err
	}
	etcd, err := etcdregistry.DialWith(creds, cfg.Etcd, t.Log)
	if err != nil {
		return fmt.Errorf("--etcd: %w", err)
	}
	d.closers.Add(etcd)
	d.registry = etcdregistry.New(etcd, t.Log, etcdregistry.Config{})
	return nil
}

// Parts returns the background processes that keep the instances up to date.
func (d *Discovery) Parts() []process.Part {
	parts := []process.Part{
		{Name: "registry", Grace: time.Second, Run: func(ctx context.Context, ready func()) error {
			ready()
			return d.Instances.Watch(ctx, d.registry)
		}},
		{Name: "desired state", Grace: time.Second, Run: func(ctx context.Context, ready func()) error {
			ready()
			return d.Operator.Run(ctx)
		}},
	}
	if d.snapshotPath == "" {
		return parts
	}
	return append(parts, process.Part{Name: "snapshot", Grace: 5 * time.Second, Run: func(ctx context.Context, ready func()) error {
		ready()
		return instances.SnapshotFile{Path: d.snapshotPath, Confirm: d.Operator.ConfirmIdentity}.Sync(ctx, d.Instances)
	}})
}

// Close closes all connections.
func (d *Discovery) Close() error { return d.closers.Close() }
