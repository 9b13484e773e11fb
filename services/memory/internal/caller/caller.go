// Package caller carries in a context which worker calls the memory service, and for which step.
package caller

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/memory"
)

// Worker is a worker that runs a step of a turn, as its credential proves.
type Worker struct {
	memory.Lease
	Step int // number of the step (0 means that the credential names none: it is valid until the turn ends)
}

type workerKey struct{}

// WithWorker returns a context for the calls of a worker. With it, reads fail like writes do: with
// fenced or turn_not_open once the turn has ended or has a higher epoch, and with turn_not_open once
// the step is committed, whatever step the turn is in.
func WithWorker(ctx context.Context, w Worker) context.Context {
	return context.WithValue(ctx, workerKey{}, w)
}

// WorkerOf returns the worker of a context (zero when the caller is no worker, and may use all sessions).
func WorkerOf(ctx context.Context) Worker {
	w, _ := ctx.Value(workerKey{}).(Worker)
	return w
}
