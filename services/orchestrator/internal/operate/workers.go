package operate

import (
	"context"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/connection"
)

// workers calls the LifecycleService of workers. Safe for concurrent use.
type workers struct{ pool *connection.Pool }

// workerCall is one LifecycleService call to a worker.
type workerCall func(context.Context, troupev1.LifecycleServiceClient) (*troupev1.InstanceStatus, error)

func pauseCall(reason string) workerCall {
	return func(ctx context.Context, w troupev1.LifecycleServiceClient) (*troupev1.InstanceStatus, error) {
		resp, err := w.Pause(ctx, &troupev1.PauseRequest{Reason: reason})
		return resp.GetStatus(), err
	}
}

func resumeCall(reason string) workerCall {
	return func(ctx context.Context, w troupev1.LifecycleServiceClient) (*troupev1.InstanceStatus, error) {
		resp, err := w.Resume(ctx, &troupev1.ResumeRequest{Reason: reason})
		return resp.GetStatus(), err
	}
}

func getState(ctx context.Context, w troupev1.LifecycleServiceClient) (*troupev1.InstanceStatus, error) {
	resp, err := w.GetState(ctx, &troupev1.GetStateRequest{})
	return resp.GetStatus(), err
}

// call calls the worker of an instance.
func (w workers) call(ctx context.Context, in registry.Instance, do workerCall) (*troupev1.InstanceStatus, error) {
	conn, release, err := w.pool.Get(ctx, in)
	if err != nil {
		return nil, err
	}
	defer release()
	status, err := do(ctx, troupev1.NewLifecycleServiceClient(conn))
	if err = grpcfailure.FromStatus("operate", err); failure.Is(err, failure.SystemNetwork) {
		err = failure.Newf(failure.SystemNetwork, "operate", "the worker at %s went away before it answered", in.Address).Because(err)
	}
	return status, err
}

// callAll calls the workers of several instances concurrently, and sets the outcomes.
func (w workers) callAll(ctx context.Context, within time.Duration, outcomes []Outcome, do workerCall) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var asking sync.WaitGroup
	for i := range outcomes {
		out := &outcomes[i]
		asking.Go(func() { out.Status, out.Err = w.call(ctx, out.Instance, do) })
	}
	asking.Wait()
}

// pauseCancelTimeout is how long a worker may take to notice that a Pause call was cancelled.
const pauseCancelTimeout = time.Second

// awaitPauses returns the status of an instance once no Pause is pending there, or after pauseCancelTimeout.
func (w workers) awaitPauses(ctx context.Context, in registry.Instance) (*troupev1.InstanceStatus, error) {
	enough := time.NewTimer(pauseCancelTimeout)
	defer enough.Stop()
	ticks := time.NewTicker(pauseCancelTimeout / 50)
	defer ticks.Stop()
	for {
		status, err := w.call(ctx, in, getState)
		if err != nil || !status.GetPausing() {
			return status, err
		}
		select {
		case <-ticks.C:
		case <-enough.C:
			return status, nil
		case <-ctx.Done():
			return status, nil
		}
	}
}
