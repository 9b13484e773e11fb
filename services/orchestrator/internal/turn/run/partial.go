package run

import (
	"context"
	"errors"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// asPartialFailure returns the error of a turn that ends after a part of its work is done (contract OC-23, C-22): a turn
// that ran out of time after some of its steps, or a round in which some steps failed and others are done. Such a turn
// can be resumed, which repeats only the failed steps. The cause decides whether to retry, so a failure that no retry
// passes keeps its mode.
func (t *Turn) asPartialFailure(work context.Context, err error) error {
	why, ok := errors.AsType[*failure.Error](err)
	if !ok {
		return err
	}
	completed, failed := t.countRound()
	done := completed
	for _, r := range t.doneBeforeRound() {
		if r.Failure == nil {
			done++
		}
	}
	switch {
	case done > 0 && failure.Is(context.Cause(work), failure.AgentTimeout):
		return newPartialFailure(failure.PartialTimeout, why, "%s; steps that are done: %d", why.Message, done)
	case completed > 0 && failed > 0 && why.Mode.Retryable():
		return newPartialFailure(failure.PartialStepFailures, why, "%d of the %d steps that ran in parallel failed: %s", failed, len(t.cursor.Round()), why.Message)
	default:
		return err
	}
}

// doneBeforeRound returns the results of the rounds before the current one. A turn that was taken over too late to run any
// round has the results of its earlier owners.
func (t *Turn) doneBeforeRound() []execution.Result {
	if t.cursor == nil {
		return t.begun.Turn.Steps
	}
	return t.conversation.Results
}

// countRound counts the steps of the current round that are completed and that failed.
func (t *Turn) countRound() (completed, failed int) {
	if t.cursor == nil {
		return 0, 0
	}
	summary := t.events.EventLog().StepSummary()
	for _, task := range t.cursor.Round() {
		switch r := summary.Finished[task.Number]; {
		case r == nil || len(r.GetPending()) > 0:
		case r.GetFailure() == nil:
			completed++
		default:
			failed++
		}
	}
	return completed, failed
}

// newPartialFailure returns a failure with the facts of its cause, whose mode is a further fact.
func newPartialFailure(mode failure.Mode, why *failure.Error, format string, args ...any) error {
	partial := failure.Newf(mode, why.Op, format, args...).Because(why)
	for fact, value := range why.Facts {
		partial = partial.With(fact, value)
	}
	return partial.With("failure_mode", string(why.Mode))
}
