package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// LostError says why a step did not end at the instance that took it, or may have taken it. The
// stream broke off, was silent, or ended without a result, or the worker violated the contract, or
// it gave the step up. The journal of the step holds what the worker did before. The worker may even
// have committed the step (guarantees F1, F2).
type LostError struct {
	Instance          registry.Instance
	Failure           *failure.Error
	ContractViolation bool // another instance would probably do the same
	MemoryOutage      bool // the worker could not reach the memory service; the instance may get the step again
}

func (l *LostError) Error() string { return l.Failure.Error() }

// Unwrap returns the failure.
func (l *LostError) Unwrap() error { return l.Failure }

// suspicion is how long an instance that became unresponsive in a step is skipped. An unresponsive instance may
// accept connections and steps, and then do nothing.
const suspicion = 5 * time.Second

// The ways in which a worker can fail to end a step, other than an error of the call.
var (
	errNoResult  = errors.New("the stream ended without a result")
	errSilent    = errors.New("the stream was silent")
	errViolation = errors.New("broke the contract")
)

// isSilent reports whether a call ended because its stream was silent.
func isSilent(call context.Context) bool { return errors.Is(context.Cause(call), errSilent) }

// lostError returns the error of a step that its instance did not end. An unresponsive instance is not asked again
// for a while, by any step. A step whose own time has run out is not lost.
func (d *Dispatcher) lostError(ctx, call context.Context, in registry.Instance, err error) error {
	if ctx.Err() != nil {
		return err
	}
	mode, what, violation := failure.ModeOf(err), "broke the step off: "+failure.Plain(err), errors.Is(err, errViolation)
	switch {
	case isSilent(call):
		mode, what, err = failure.SystemNetwork, "went silent while it worked", errSilent
	case violation:
		mode, what = failure.AgentContract, err.Error()
	case errors.Is(err, errNoResult):
		mode, what = failure.AgentContract, "ended the step without a result"
	case mode == failure.SystemNetwork:
		what = "went away while it worked"
	}
	why := failure.Newf(mode, "dispatch", "instance %s of agent %s %s", in.ID, in.Agent, what).
		With("instance_id", in.ID).Because(fmt.Errorf("at %s: %w", in.Address, err))
	if isSilent(call) {
		d.backoffs.Add(in, suspicion, why)
	}
	return &LostError{Instance: in, Failure: why, ContractViolation: violation}
}

// violationError returns the error of a step whose events named another trace, session, turn or step. No more
// events of the attempt are accepted.
func violationError(in registry.Instance, err error) error {
	e, _ := errors.AsType[*failure.Error](err)
	return &LostError{Instance: in, Failure: e.With("instance_id", in.ID), ContractViolation: true}
}

// hasGivenUp reports whether the failure of a step means that its worker could not continue it.
func hasGivenUp(why *failure.Error) bool {
	return failure.Is(why, failure.InstanceDraining, failure.Fenced) || isMemoryOutage(why)
}

// isMemoryOutage reports whether the worker could not reach the memory service for the whole lease.
func isMemoryOutage(why *failure.Error) bool { return why.Facts["lost_lease"] == "true" }
