package app

import (
	"context"
	"errors"
	"net/url"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/process"
)

// How often a dependency is asked, and how long it may take to answer.
const (
	askWhileAway  = 250 * time.Millisecond
	askWhileThere = 2 * time.Second
	answerTime    = time.Second
)

// dependency is something without which turns cannot be admitted.
type dependency struct {
	condition string
	address   string
	ask       func(context.Context) error
}

// dependenciesPart keeps the board's word on each dependency. It is ready at once: a
// dependency that is away makes the orchestrator unready, not dead.
func (a *App) dependenciesPart() process.Part {
	return process.Part{Name: "dependencies", Grace: 2 * answerTime, Run: func(ctx context.Context, ready func()) error {
		ready()
		done := make(chan struct{})
		for _, d := range a.dependencies {
			go func() { a.watch(ctx, d); done <- struct{}{} }()
		}
		for range a.dependencies {
			<-done
		}
		return nil
	}}
}

func (a *App) watch(ctx context.Context, d dependency) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	told := false
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		asking, cancel := context.WithTimeout(ctx, answerTime)
		err := d.ask(asking)
		cancel()
		if err != nil && ctx.Err() == nil {
			if a.board.Set(d.condition, errors.New("cannot be reached")) || !told {
				told = true
				a.telemetry.Log.Warn("waiting for a dependency", zap.String("dependency", d.condition), zap.String("address", d.address), zap.Error(err))
			}
			pause.Reset(askWhileAway)
			continue
		}
		if a.board.Set(d.condition, nil) {
			told = true
			a.telemetry.Log.Info("dependency is there", zap.String("dependency", d.condition), zap.String("address", d.address))
		}
		pause.Reset(askWhileThere)
	}
}

// memoryHealth asks the memory service whether it serves.
func memoryHealth(conn grpc.ClientConnInterface) func(context.Context) error {
	client := healthpb.NewHealthClient(conn)
	return func(ctx context.Context) error {
		resp, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
		if err != nil {
			return failure.FromStatus("health", err)
		}
		if resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			return errors.New(resp.GetStatus().String())
		}
		return nil
	}
}

// redactedURL is a URL that may be logged.
func redactedURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(not a URL)"
	}
	return u.Redacted()
}
