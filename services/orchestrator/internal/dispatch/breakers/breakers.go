// Package breakers keeps a circuit breaker for each instance whose last step failed (contract OC-34). An instance
// with an open breaker gets no steps, except for a trial step. The breaker closes if the trial succeeds.
package breakers

import (
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/breaker"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
)

// Breakers holds the circuit breakers of instances. An instance whose last step succeeded has no breaker and costs
// nothing. Only steps that the instance accepted count. Package backoff handles the other ones. Safe for
// concurrent use.
type Breakers struct {
	log *zap.Logger

	mu         sync.Mutex
	byInstance map[instances.Incarnation]*instanceBreaker
}

type instanceBreaker struct {
	circuit  *breaker.Breaker
	failedAt time.Time // the last failure
	err      error     // the last failure
}

// forgetAfter is how long a failure counts if no other failure follows.
const forgetAfter = 10 * time.Minute

// New returns Breakers without any failure, so all instances may get steps.
func New(log *zap.Logger) *Breakers {
	return &Breakers{log: log, byInstance: map[instances.Incarnation]*instanceBreaker{}}
}

// ReportFunc reports the outcome of a step at its instance, and the error if it failed. The caller must call it
// exactly once.
type ReportFunc func(result breaker.Result, err error)

// Allow reports whether an instance may get a step: it returns the function that reports the outcome of the step.
// It returns nil while the breaker is open or another step is the trial.
func (b *Breakers) Allow(in registry.Instance) ReportFunc {
	b.mu.Lock()
	defer b.mu.Unlock()
	began := time.Now()
	own := b.byInstance[instances.IncarnationOf(in)]
	if own == nil {
		return func(result breaker.Result, err error) {
			if result == breaker.Failure {
				b.recordFirstFailure(in, began, err)
			}
		}
	}
	done, _ := own.circuit.Try()
	if done == nil {
		return nil
	}
	return func(result breaker.Result, err error) { b.recordResult(in, own, began, done, result, err) }
}

// recordFirstFailure records a failure of a step that began when the instance had no breaker. Another step may
// have created the breaker since.
func (b *Breakers) recordFirstFailure(in registry.Instance, began time.Time, err error) {
	who := instances.IncarnationOf(in)
	b.mu.Lock()
	own := b.byInstance[who]
	if own == nil {
		maps.DeleteFunc(b.byInstance, func(_ instances.Incarnation, old *instanceBreaker) bool {
			return time.Since(old.failedAt) > forgetAfter
		})
		own = &instanceBreaker{circuit: breaker.New(func(open bool) { b.logChange(in, open) })}
		b.byInstance[who] = own
	}
	b.mu.Unlock()
	if done, _ := own.circuit.Try(); done != nil {
		b.recordResult(in, own, began, done, breaker.Failure, err)
	}
}

// recordResult records the outcome of a step. Steps that ran at the same time and failed together, such as by the
// loss of one connection, count as one failure.
func (b *Breakers) recordResult(in registry.Instance, own *instanceBreaker, began time.Time, done func(breaker.Result), result breaker.Result, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case result == breaker.Failure && began.Before(own.failedAt):
		result = breaker.Inconclusive
	case result == breaker.Failure:
		own.failedAt, own.err = time.Now(), err
	}
	done(result)
	if who := instances.IncarnationOf(in); own.circuit.IsHealthy() && b.byInstance[who] == own {
		delete(b.byInstance, who)
	}
}

// Status is the state of a breaker.
type Status int

// The states.
const (
	Closed  Status = iota // too few failures to open the breaker
	Open                  // the instance gets no steps
	InTrial               // one step is testing whether the instance works again
)

// InstanceFailure describes the breaker and the last error of an instance whose last step failed.
type InstanceFailure struct {
	Status Status
	Err    error // the last failure
}

// Failures returns the instances of an agent whose last step failed.
func (b *Breakers) Failures(agent string) map[instances.Incarnation]InstanceFailure {
	b.mu.Lock()
	defer b.mu.Unlock()
	var failures map[instances.Incarnation]InstanceFailure
	for who, own := range b.byInstance {
		if who.Agent == agent {
			if failures == nil {
				failures = map[instances.Incarnation]InstanceFailure{}
			}
			failures[who] = InstanceFailure{own.status(), own.err}
		}
	}
	return failures
}

func (i *instanceBreaker) status() Status {
	switch {
	case !i.circuit.IsOpen():
		return Closed
	case i.circuit.IsTrialRunning():
		return InTrial
	default:
		return Open
	}
}

func (b *Breakers) logChange(in registry.Instance, open bool) {
	fields := []zap.Field{zap.String("agent", in.Agent), zap.String("instance", in.ID), zap.Int64("incarnation", in.Incarnation)}
	if open {
		b.log.Warn("circuit breaker opened: the instance failed its last steps", append(fields, zap.Duration("pause", breaker.OpenDuration))...)
		return
	}
	b.log.Info("circuit breaker closed: the instance works again", fields...)
}
