// Package caller stores in a context which worker calls the memory service, and for which step.
package caller

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/memory"
)

// Worker is a worker that runs a step of a turn, as proved by its credential.
type Worker struct {
	memory.Lease
	Step int // number of the step (0 if the credential names no step and is valid until the turn ends)
}

type workerKey struct{}

// WithWorker returns a context for the calls of a worker. With this context, reads fail as writes do. They fail
// with fenced or turn_not_open once the turn has ended or has a higher epoch, and with turn_not_open once the step
// is committed.
func WithWorker(ctx context.Context, w Worker) context.Context {
	return context.WithValue(ctx, workerKey{}, w)
}

// WorkerFromContext returns the worker that makes the call. It returns the zero Worker for a caller that is not a
// worker and may access all sessions.
func WorkerFromContext(ctx context.Context) Worker {
	w, _ := ctx.Value(workerKey{}).(Worker)
	return w
}
