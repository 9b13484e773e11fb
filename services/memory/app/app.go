// Package app is the composition root of the memory service: the one place that knows
// that Redis stands behind the MEMORY tier.
package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"go.uber.org/zap"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/probe"
	"github.com/troupe-dev/troupe/pkg/process"
	"github.com/troupe-dev/troupe/pkg/rpc"
	"github.com/troupe-dev/troupe/pkg/telemetry"
	"github.com/troupe-dev/troupe/services/memory/internal/api"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore"
)

// App is a memory service whose ports are open.
type App struct {
	cfg       Config
	telemetry *telemetry.Telemetry
	board     *probe.Board
	grpc      *rpc.Server
	grpcLis   net.Listener
	httpLis   net.Listener
	store     *redisstore.Store
	closers   process.Closers
}

// conditionStore is that of the service's readiness.
const conditionStore = "redis"

// answerTime is how long Redis may take to tell its configuration.
const answerTime = time.Second

// New opens the ports, and connects nothing yet. Run must follow, or Close.
func New(t *telemetry.Telemetry, cfg Config) (*App, error) {
	a := &App{cfg: cfg, telemetry: t, board: probe.NewBoard(conditionStore)}
	if err := a.open(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *App) open() (err error) {
	if a.store, err = redisstore.New(redisstore.Config{URL: a.cfg.Redis}); err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	a.closers.Add(a.store)
	if a.grpcLis, err = rpc.Listen("--grpc-addr", a.cfg.GRPCAddr); err != nil {
		return err
	}
	a.closers.Add(a.grpcLis)
	if a.httpLis, err = rpc.Listen("--http-addr", a.cfg.HTTPAddr); err != nil {
		return err
	}
	a.closers.Add(a.httpLis)
	if a.grpc, err = rpc.NewServer(a.telemetry, rpc.Config{Reflection: a.cfg.Reflection, Inner: true}); err != nil {
		return err
	}
	troupev1.RegisterMemoryServiceServer(a.grpc, api.New(a.store))
	return nil
}

// GRPCAddr is where the service serves gRPC.
func (a *App) GRPCAddr() string { return a.grpcLis.Addr().String() }

// HTTPAddr is where it serves its probes.
func (a *App) HTTPAddr() string { return a.httpLis.Addr().String() }

// Run serves until ctx ends, and calls ready once Redis was there. Calls in flight when it
// stops may end within the grace.
func (a *App) Run(ctx context.Context, ready func()) error {
	a.grpc.Follow(a.board)
	a.telemetry.Log.Info("serving", zap.String("grpc", a.GRPCAddr()), zap.String("http", a.HTTPAddr()), zap.String("redis", a.store.Addr()))
	err := process.Run(ctx, a.telemetry.Log, ready,
		probe.Part(a.httpLis, a.board.Handler(a.telemetry.Scrape)),
		a.grpc.Part(a.grpcLis, a.cfg.Grace),
		probe.DependencyPart(a.board, a.telemetry.Log, probe.Dependency{
			Condition: conditionStore, Address: a.store.Addr(), Ask: a.store.Ping, Back: a.warnUnlessDurable,
		}, true),
	)
	return errors.Join(err, a.Close())
}

// Close closes what New opened. Run does so itself.
func (a *App) Close() error { return a.closers.Close() }

// warnUnlessDurable tells whoever runs the service that it cannot keep its word.
func (a *App) warnUnlessDurable(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if err := a.store.Durable(ctx); err != nil && ctx.Err() == nil {
		a.telemetry.Log.Warn("acknowledged turns are not durable", zap.Error(err))
	}
}
