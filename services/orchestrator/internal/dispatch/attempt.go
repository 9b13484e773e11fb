package dispatch

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/contract"
)

// tryInstance runs a step at an instance. It returns whether the instance accepted the step, and the result or the
// error.
func (d *Dispatcher) tryInstance(
	ctx context.Context, in registry.Instance, req *troupev1.ExecuteStepRequest, h Handler,
) (_ *troupev1.StepResult, accepted bool, _ error) {
	conn, release, err := d.connect(ctx, in)
	if err != nil {
		return nil, false, err
	}
	defer release()
	call, cancel := withLaterDeadline(ctx)
	defer cancel(nil)
	worker := troupev1.NewAgentServiceClient(conn)
	req.ProvidesEntries = h.EarlierEntries != nil
	stream, err := worker.ExecuteStep(call, req, grpc.ForceCodecV2(newStrictCodec()))
	if err != nil {
		return nil, false, grpcfailure.FromStatus("dispatch", err)
	}
	silence := time.AfterFunc(d.maxSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	// A worker sends the header as soon as it has accepted the step.
	if header, _ := stream.Header(); header == nil {
		_, err := stream.Recv()
		err = grpcfailure.FromStatus("dispatch", err)
		if isRejection(err) {
			return nil, false, err
		}
		if isSilent(call) || failure.Is(err, failure.SystemNetwork, failure.Fenced) { // the worker may be running the step
			err = d.newLostError(ctx, call, in, err)
		}
		return nil, true, err
	}
	silence.Stop() // not counted while the handler runs
	if err := h.OnStarted(in); err != nil {
		return nil, true, err
	}
	silence.Reset(d.maxSilence)
	result, workerErr, err := readStream(req, stream, h, func() { silence.Reset(d.maxSilence) }, func(asked *troupev1.EntriesRequest) {
		if h.EarlierEntries != nil {
			provideEntries(call, worker, asked, h)
		}
	})
	switch {
	case failure.Is(workerErr, failure.StateViolation):
		return nil, true, newViolationError(in, workerErr)
	case workerErr != nil:
		return nil, true, d.newLostError(ctx, call, in, workerErr)
	case err != nil:
		return nil, true, err
	}
	if why := grpcfailure.FromProto(result.GetFailure()); why != nil && hasGivenUp(why) {
		return nil, true, &LostError{Instance: in, Failure: why.With("instance_id", in.ID), IsMemoryOutage: isMemoryOutage(why)}
	}
	return result, true, nil
}

// connectTimeout is how long a step waits for a connection before it tries another instance. The pool keeps
// connecting in the background for later steps.
const connectTimeout = 200 * time.Millisecond

// unreachableFactor sets the backoff of an instance that could not be reached: this factor times how long the step
// waited for it. An instance that rejects connections at once causes no wait, so it is tried again at once. An
// instance that does not answer is skipped for a while.
const unreachableFactor = 3

// connect returns a connection to an instance. If there is none, it puts the instance into backoff.
func (d *Dispatcher) connect(ctx context.Context, in registry.Instance) (*grpc.ClientConn, func(), error) {
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, release, err := d.pool.Get(within, in)
	if err != nil && ctx.Err() == nil {
		d.backoffs.Add(in, unreachableFactor*time.Since(began), err)
	}
	return conn, release, err
}

// deadlineExtension is added to the deadline of the step to get the deadline that the worker sees.
const deadlineExtension = time.Second

// withLaterDeadline returns a context that is cancelled with ctx but whose deadline is slightly later. So the
// orchestrator ends the step first and reports the reason, not the worker.
func withLaterDeadline(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	late, done := context.WithoutCancel(ctx), context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		late, done = context.WithDeadline(late, deadline.Add(deadlineExtension))
	}
	late, cancel := context.WithCancelCause(late)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return late, func(cause error) { stop(); cancel(cause); done() }
}

// readStream passes events to the handler until the result arrives. It calls received for each item, and provide for a
// request of the worker. workerErr is an error of the worker or the connection. err is an error of the handler.
func readStream(
	req *troupev1.ExecuteStepRequest, stream troupev1.AgentService_ExecuteStepClient, h Handler, received func(), provide func(*troupev1.EntriesRequest),
) (_ *troupev1.StepResult, workerErr, err error) {
	checker := contract.NewChecker(req)
	for {
		item, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil, errNoResult, nil
		case err != nil:
			return nil, grpcfailure.FromStatus("dispatch", err), nil
		}
		received()
		if r := item.GetResult(); r != nil { // truncates a message that exceeds the limits
			r.Failure = grpcfailure.ToProto(grpcfailure.FromProto(r.GetFailure()))
		}
		if err := checker.Check(item); err != nil {
			return nil, err, nil
		}
		switch {
		case item.GetResult() != nil:
			return item.GetResult(), nil, nil
		case item.GetEvent() != nil:
			if err := h.OnEvent(item.GetEvent()); err != nil {
				return nil, nil, err
			}
		case item.GetEntriesRequest() != nil:
			provide(item.GetEntriesRequest())
			received()
		}
	}
}
