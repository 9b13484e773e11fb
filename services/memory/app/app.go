// Package app is the composition root of the memory service. It is the only package that knows that the MEMORY
// tier is in Redis.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/probe"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/rate"
	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/memory/internal/api"
	"github.com/troupe-dev/troupe/services/memory/internal/generation"
	"github.com/troupe-dev/troupe/services/memory/internal/maintenance"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore"
	"github.com/troupe-dev/troupe/services/memory/internal/scope"
)

// App is a memory service. New opens its ports, and Run serves them.
type App struct {
	cfg             Config
	env             Environment
	telemetry       *telemetry.Telemetry
	board           *probe.Board
	grpc            *rpc.Server
	grpcLis         net.Listener
	httpLis         net.Listener
	store           addressedStore
	checkStore      func(context.Context) error
	durability      *durabilityChecker // nil without Redis
	generationGuard *generation.Guard  // nil without etcd and for ephemeral data
	maintainer      *maintenance.Maintainer
	desiredStates   registry.DesiredStates // nil without etcd
	quarantine      quarantine
	closers         process.Closers
}

// addressedStore is a store with an address for the log.
type addressedStore interface {
	maintenance.Store
	Addr() string
}

// storeCondition is the name of the readiness condition that holds while Redis serves requests.
const storeCondition = "redis"

// storeRecordName is the name under which the registry keeps the generation of the store.
const storeRecordName = "redis"

// New opens the ports. It does not connect to Redis or etcd yet. The caller must call Run or Close.
func New(t *telemetry.Telemetry, cfg Config) (*App, error) { return NewIn(Environment{}, t, cfg) }

// NewIn is like New, in an environment.
func NewIn(env Environment, t *telemetry.Telemetry, cfg Config) (*App, error) {
	cfg.Durability = cmp.Or(cfg.Durability, string(redisconn.D1))
	a := &App{cfg: cfg, env: env, telemetry: t, board: probe.NewBoard(storeCondition)}
	if err := a.open(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *App) open() (err error) {
	self, err := identity.Open(a.cfg.Identity, identity.Memory, "", a.telemetry.Log)
	if err != nil {
		return err
	}
	if err = a.openStore(self); err != nil {
		return err
	}
	if a.grpcLis, err = a.env.Network.Listen("--grpc-addr", a.cfg.GRPCAddr, a.cfg.Identity.CheckAddress); err != nil {
		return err
	}
	a.closers.Add(a.grpcLis)
	if a.httpLis, err = a.env.Network.Listen("--http-addr", a.cfg.HTTPAddr); err != nil {
		return err
	}
	a.closers.Add(a.httpLis)
	rates, err := rate.Load(a.cfg.Rates, rate.InternalDefaults())
	if err != nil {
		return fmt.Errorf("--rates: %w", err)
	}
	turns := turncred.New(self)
	if a.grpc, err = rpc.NewServer(a.telemetry, rpc.Config{
		Reflection: a.cfg.Reflection, Internal: true, Identity: self,
		Authenticate: turncred.Authenticate(turns, rpc.PrincipalFromCertificate), Scope: scope.New(turns),
		CheckBarred: a.quarantine.check, IsExpectedError: isLateJournalWrite,
		Rates: rate.New(rates), PeerConnections: rpc.MaxInternalPeerConnections,
	}); err != nil {
		return err
	}
	a.maintainer, err = maintenance.New(maintenance.Config{
		Store: a.store, Retention: a.cfg.Sessions.SessionRetention,
		CompactAbove: a.cfg.Sessions.CompactAbove, CompactKeep: a.cfg.Sessions.CompactKeep,
		Log: a.telemetry.Log, Metrics: a.telemetry.Metrics,
	})
	if err != nil {
		return err
	}
	troupev1.RegisterMemoryServiceServer(a.grpc, api.New(a.maintainer.ObservedStore()))
	return nil
}

func (a *App) openStore(self *identity.Source) (err error) {
	if a.env.Store != nil {
		a.store, a.checkStore, a.desiredStates = unmaintainedStore{a.env.Store}, a.env.Store.Ping, a.env.DesiredStates
		return nil
	}
	if len(a.cfg.Etcd) > 0 {
		creds, err := a.cfg.EtcdSecurity.Credentials(a.cfg.Etcd, self, a.telemetry.Log)
		if err != nil {
			return err
		}
		etcd, err := etcdregistry.DialWith(creds, a.cfg.Etcd, a.telemetry.Log)
		if err != nil {
			return fmt.Errorf("--etcd: %w", err)
		}
		a.closers.Add(etcd)
		a.desiredStates = etcdregistry.New(etcd, a.telemetry.Log, etcdregistry.Config{})
		if !a.cfg.Ephemeral {
			a.generationGuard, err = generation.New(generation.Config{
				Records: etcdregistry.NewStoreRecords(etcd, ""), Name: storeRecordName, Log: a.telemetry.Log, Metrics: a.telemetry.Metrics,
			})
			if err != nil {
				return err
			}
		}
	}
	a.durability = &durabilityChecker{class: redisconn.DurabilityClass(a.cfg.Durability), log: a.telemetry.Log, checkedProcesses: map[string]bool{}}
	redis, err := redisstore.New(redisstore.Config{
		URL:             a.cfg.Redis,
		Durability:      a.durability.class,
		Security:        a.cfg.RedisSecurity,
		Generation:      a.generation,
		RequireIdentity: a.generationGuard != nil,
		OnConnect:       a.recordProcess,

		KeepJournals: a.cfg.Sessions.KeepJournals,
	})
	if err != nil {
		return err // the error names the flag
	}
	a.store, a.checkStore, a.durability.store = redis, a.durability.checkRedis, redis
	a.closers.Add(redis)
	return nil
}

// isLateJournalWrite reports whether a journal write was rejected because its step was already committed. Such a
// rejection is normal: a worker commits without waiting for its journal writes, and the commit includes them.
func isLateJournalWrite(method string, err error) bool {
	return method == troupev1.MemoryService_Journal_FullMethodName && failure.Is(err, failure.TurnNotOpen)
}

// generation returns the generation of the data in Redis. While it returns an error, no turn may begin.
func (a *App) generation() (int64, error) {
	if err := a.durability.checkTurn(); err != nil || a.generationGuard == nil {
		return 0, err
	}
	return a.generationGuard.Generation()
}

// recordProcess records the Redis process that a new connection has reached. A new process may have other data and
// other settings.
func (a *App) recordProcess(process string) {
	a.durability.recordProcess(process)
	if a.generationGuard != nil {
		a.generationGuard.RecordProcess(process)
	}
}

// GRPCAddr returns the address of the gRPC port.
func (a *App) GRPCAddr() string { return a.grpcLis.Addr().String() }

// HTTPAddr returns the address of the port for probes and metrics.
func (a *App) HTTPAddr() string { return a.httpLis.Addr().String() }

// Run serves until ctx ends, and calls ready once Redis has been reached. When ctx ends, calls in flight may
// finish within the grace period.
func (a *App) Run(ctx context.Context, ready func()) error {
	a.grpc.FollowBoard(a.board)
	a.telemetry.Log.Info("serving", zap.String("grpc", a.GRPCAddr()), zap.String("http", a.HTTPAddr()),
		zap.String("redis", a.store.Addr()), zap.String("version", process.Version()))
	parts := []process.Part{
		probe.ServerPart(a.httpLis, a.board.Handler(a.telemetry.MetricsHandler)),
		a.grpc.ProcessPart(a.grpcLis, a.cfg.Grace),
		probe.DependencyPart(a.board, a.telemetry.Log, probe.Dependency{
			Condition: storeCondition, Address: a.store.Addr(), Check: a.checkStore,
		}, true),
	}
	parts = append(parts, process.Part{Name: "maintenance", Grace: a.cfg.Grace, Run: a.maintainer.Run})
	if a.desiredStates != nil {
		parts = append(parts, a.quarantine.watchDesiredStates(a.desiredStates, a.telemetry.Log))
	} else {
		a.telemetry.Log.Info("no --etcd: the data stay in generation 0, also after a failover or a restore of redis, " +
			"and workers of quarantined agents are not rejected")
	}
	if a.generationGuard != nil {
		parts = append(parts, process.Part{Name: "generation", Grace: a.cfg.Grace, Run: func(ctx context.Context, ready func()) error {
			return a.generationGuard.Run(ctx, a.durability.store, ready)
		}})
	}
	return errors.Join(process.Run(ctx, a.telemetry.Log, ready, parts...), a.Close())
}

// Close closes the ports and connections that New opened. Run calls it before it returns.
func (a *App) Close() error { return a.closers.Close() }
