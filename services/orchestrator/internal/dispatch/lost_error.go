package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/contract"
)

// LostError says why an instance did not finish a step that it accepted, or may have accepted. The stream broke,
// was silent or ended without a result, the worker violated the contract, or it gave up the step. The step's
// journal holds the work that was done. The worker may even have committed the step (guarantees F1, F2).
type LostError struct {
	Instance         registry.Instance
	Failure          *failure.Error
	ViolatesContract bool // the worker violated the contract, and another instance would probably do the same
	IsMemoryOutage   bool // the worker could not reach the memory service, so the same instance may get the step again
}

func (l *LostError) Error() string { return l.Failure.Error() }

// Unwrap returns the failure.
func (l *LostError) Unwrap() error { return l.Failure }

// unresponsiveBackoff is how long an instance is skipped after it became unresponsive during a step. Such an
// instance might accept connections and steps without doing anything.
const unresponsiveBackoff = 5 * time.Second

// Errors of a worker that does not finish a step, other than errors of the call.
var (
	errNoResult = errors.New("the stream ended without a result")
	errSilent   = errors.New("the stream was silent")
)

// isSilent reports whether a call was cancelled because its stream was silent.
func isSilent(call context.Context) bool { return errors.Is(context.Cause(call), errSilent) }

// newLostError returns the error of a step that its instance did not finish. All steps avoid an unresponsive
// instance for a while. A step that has exceeded its own deadline is not lost.
func (d *Dispatcher) newLostError(ctx, call context.Context, in registry.Instance, err error) error {
	if ctx.Err() != nil {
		return err
	}
	mode, what, violation := failure.ModeOf(err), "broke the step off: "+failure.PlainMessage(err), errors.Is(err, contract.ErrBroken)
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
		d.backoffs.Add(in, unresponsiveBackoff, why)
	}
	return &LostError{Instance: in, Failure: why, ViolatesContract: violation}
}

// newViolationError returns the error of a step whose events named another trace, session, turn or step. Further
// events of the attempt are ignored.
func newViolationError(in registry.Instance, err error) error {
	e, _ := errors.AsType[*failure.Error](err)
	return &LostError{Instance: in, Failure: e.With("instance_id", in.ID), ViolatesContract: true}
}

// hasGivenUp reports whether a step's failure means that its worker could not continue it.
func hasGivenUp(why *failure.Error) bool {
	return failure.Is(why, failure.InstanceDraining, failure.Fenced) || isMemoryOutage(why)
}

// isMemoryOutage reports whether the worker could not reach the memory service for the whole lease.
func isMemoryOutage(why *failure.Error) bool { return why.Facts["lost_lease"] == "true" }
