package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// maxSilence is for how long the stream of an admitted step may be silent (guarantee
// F2). A worker sends something every 2 s.
const maxSilence = 6 * time.Second

// LostError is why a step came to no end at the instance that took it, or may have taken it:
// the stream broke off, was silent, or ended without a result, or the worker broke the
// contract, or says that it had to give the step up. What the worker did before is in the
// journal of the step; it may even have committed it (guarantees F1, F2).
type LostError struct {
	Instance          registry.Instance
	Failure           *failure.Error
	ContractViolation bool // of the contract: another instance would hardly do better
	MemoryOutage      bool // of the memory service: the instance may have the step again
}

func (l *LostError) Error() string { return l.Failure.Error() }

// Unwrap returns the failure.
func (l *LostError) Unwrap() error { return l.Failure }

// try reports whether the instance took the step, and what came of it.
func (d *Dispatcher) try(ctx context.Context, in registry.Instance, req *troupev1.ExecuteStepRequest, h Handler) (_ *troupev1.StepResult, taken bool, _ error) {
	conn, release, err := d.reach(ctx, in)
	if err != nil {
		return nil, false, err
	}
	defer release()
	call, cancel := behind(ctx)
	defer cancel(nil)
	stream, err := troupev1.NewAgentServiceClient(conn).ExecuteStep(call, req, grpc.ForceCodecV2(newKnown()))
	if err != nil {
		return nil, false, grpcfailure.FromStatus("dispatch", err)
	}
	quiet := time.AfterFunc(d.silence, func() { cancel(errSilent) })
	defer quiet.Stop()
	// A worker sends the header when it has admitted the step.
	if header, _ := stream.Header(); header == nil {
		_, err := stream.Recv()
		err = grpcfailure.FromStatus("dispatch", err)
		if refused(err) {
			return nil, false, err
		}
		if silent(call) || failure.Is(err, failure.SystemNetwork, failure.Fenced) { // it may be at work
			err = d.lost(ctx, call, in, err)
		}
		return nil, true, err
	}
	quiet.Stop() // while it is told
	if err := h.Started(in); err != nil {
		return nil, true, err
	}
	quiet.Reset(d.silence)
	result, broken, err := follow(req, stream, h, func() { quiet.Reset(d.silence) })
	switch {
	case failure.Is(broken, failure.StateViolation):
		return nil, true, trespassed(in, broken)
	case broken != nil:
		return nil, true, d.lost(ctx, call, in, broken)
	case err != nil:
		return nil, true, err
	}
	if why := grpcfailure.FromProto(result.GetFailure()); why != nil && gaveUp(why) {
		return nil, true, &LostError{Instance: in, Failure: why.With("instance_id", in.ID), MemoryOutage: outage(why)}
	}
	return result, true, nil
}

// reachTime is how long a step waits for a connection before it looks elsewhere. One that
// takes longer goes on being made, and is there for a later look.
const reachTime = 200 * time.Millisecond

// reach returns a connection to an instance, and remembers when there is none.
func (d *Dispatcher) reach(ctx context.Context, in registry.Instance) (*grpc.ClientConn, func(), error) {
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	conn, release, err := d.pool.Get(within, in)
	if err != nil && ctx.Err() == nil {
		d.deaf.note(in, deafFactor*time.Since(began), err)
	}
	return conn, release, err
}

// lag is by how much a worker's deadline is behind the step's.
const lag = time.Second

// behind returns a context that ends with ctx, and whose deadline is a little later: it is
// this side that ends a step, and says why, and not the clock of the worker.
func behind(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	late, done := context.WithoutCancel(ctx), context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		late, done = context.WithDeadline(late, deadline.Add(lag))
	}
	late, cancel := context.WithCancelCause(late)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return late, func(cause error) { stop(); cancel(cause); done() }
}

// refused reports whether the instance said that it did not begin the step.
func refused(err error) bool {
	return failure.Is(err, failure.InstanceFull, failure.InstancePaused, failure.InstanceDraining, failure.AgentState)
}

// gaveUp reports whether the failure of a step says that its worker could not go on with it.
func gaveUp(why *failure.Error) bool {
	return failure.Is(why, failure.InstanceDraining, failure.Fenced) || outage(why)
}

// outage reports whether the worker could not reach the memory service for the whole lease.
func outage(why *failure.Error) bool { return why.Facts["lost_lease"] == "true" }

// The ways in which a worker can leave a step open that are not an error of the call.
var (
	errNoResult = errors.New("the stream ended without a result")
	errSilent   = errors.New("the stream was silent")
	errBreach   = errors.New("broke the contract")
)

// silent reports whether a call ended for its silence.
func silent(call context.Context) bool { return errors.Is(context.Cause(call), errSilent) }

// follow hands events on until the result, and tells of each item that came. Broken is what
// the worker, or the way to it, did wrong; err is of the handler.
func follow(req *troupev1.ExecuteStepRequest, stream troupev1.AgentService_ExecuteStepClient, h Handler, heard func()) (_ *troupev1.StepResult, broken, err error) {
	for {
		item, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil, errNoResult, nil
		case err != nil:
			return nil, grpcfailure.FromStatus("dispatch", err), nil
		}
		heard()
		if r := item.GetResult(); r != nil { // a failure is not lost for being told at length
			r.Failure = grpcfailure.ToProto(grpcfailure.FromProto(r.GetFailure()))
		}
		if err := rpc.Validate(item); err != nil {
			return nil, fmt.Errorf("%w: %s", errBreach, failure.Plain(err)), nil
		}
		if err := unchanged(req, item); err != nil {
			return nil, err, nil
		}
		switch {
		case item.GetResult() != nil:
			return item.GetResult(), nil, nil
		case item.GetEvent() != nil:
			if err := h.Event(item.GetEvent()); err != nil {
				return nil, nil, err
			}
		}
	}
}

// lost says which instance a step was lost with, and how. One that went silent is passed
// over for a while, by all steps. A step whose own time is over is not lost.
func (d *Dispatcher) lost(ctx, call context.Context, in registry.Instance, err error) error {
	if ctx.Err() != nil {
		return err
	}
	mode, what, breach := failure.ModeOf(err), "broke the step off: "+failure.Plain(err), errors.Is(err, errBreach)
	switch {
	case silent(call):
		mode, what, err = failure.SystemNetwork, "went silent while it worked", errSilent
	case breach:
		mode, what = failure.AgentContract, err.Error()
	case errors.Is(err, errNoResult):
		mode, what = failure.AgentContract, "ended the step without a result"
	case mode == failure.SystemNetwork:
		what = "went away while it worked"
	}
	why := failure.Newf(mode, "dispatch", "instance %s of agent %s %s", in.ID, in.Agent, what).
		With("instance_id", in.ID).Because(fmt.Errorf("at %s: %w", in.Address, err))
	if silent(call) {
		d.deaf.note(in, suspicion, why)
	}
	return &LostError{Instance: in, Failure: why, ContractViolation: breach}
}
