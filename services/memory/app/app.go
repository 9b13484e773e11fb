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

	"github.com/troupe-dev/troupe/pkg/failure"
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
}

// The conditions of the service's readiness.
const (
	conditionStore   = "redis"
	conditionRunning = "running" // holds until the service stops
)

// How often Redis is asked while it is there, and how long it may take to answer.
const (
	askEvery   = time.Second
	answerTime = time.Second
)

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
	if a.grpcLis, err = rpc.Listen("--grpc-addr", a.cfg.GRPCAddr); err != nil {
		return err
	}
	if a.httpLis, err = rpc.Listen("--http-addr", a.cfg.HTTPAddr); err != nil {
		return err
	}
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
		process.Part{Name: "redis", Grace: 2 * answerTime, Run: a.watchStore},
	)
	return errors.Join(err, a.Close())
}

// Close gives back what New opened. Run does so itself.
func (a *App) Close() error {
	for _, lis := range []net.Listener{a.grpcLis, a.httpLis} {
		if lis != nil {
			_ = lis.Close() // one that served is closed already
		}
	}
	if a.store == nil {
		return nil
	}
	return a.store.Close()
}

// watchStore keeps the board's word on Redis until ctx ends, and with it the readiness.
// It is ready when Redis answers for the first time.
func (a *App) watchStore(ctx context.Context, ready func()) error {
	log := a.telemetry.Log.With(zap.String("address", a.store.Addr()))
	pace := failure.NewPace()
	told := false
	for ctx.Err() == nil {
		err := a.ask(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if a.board.Set(conditionStore, fmt.Errorf("%s cannot be reached", a.store.Addr())) || !told {
				log.Warn("waiting for redis; every call fails until it is there", zap.Error(err))
			}
			told = true
			_ = pace.Wait(ctx) // it ends early only when ctx does
		default:
			pace.Reset()
			if a.board.Set(conditionStore, nil) {
				log.Info("redis is there")
				a.warnUnlessDurable(ctx, log)
			}
			told = true
			ready()
			wait(ctx, askEvery)
		}
	}
	a.board.Set(conditionRunning, errors.New("the service is stopping"))
	return nil
}

func (a *App) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return a.store.Ping(ctx)
}

// warnUnlessDurable tells whoever runs the service that it cannot keep its word.
func (a *App) warnUnlessDurable(ctx context.Context, log *zap.Logger) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if err := a.store.Durable(ctx); err != nil && ctx.Err() == nil {
		log.Warn("acknowledged turns are not durable", zap.Error(err))
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
