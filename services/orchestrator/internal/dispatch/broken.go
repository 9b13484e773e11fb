package dispatch

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/breaker"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// broken are the instances that failed their last step, each with its circuit (contract OC-34).
// Those that did not are not in it, and cost nothing. It is of steps that an instance had; deaf
// is of those that it could not be given. Safe for concurrent use.
type broken struct {
	log   *zap.Logger
	mu    sync.Mutex
	known map[run]*trouble
}

// trouble is what is known of an instance that failed its last step.
type trouble struct {
	circuit *breaker.Breaker
	last    time.Time // when it failed
	err     error     // how
}

// forget is after which time a failure says nothing any more.
const forget = 10 * time.Minute

var errOnTrial = failure.New(failure.ResourceCircuit, "dispatch", "it failed its last steps, and another step shows now whether it works again")

func newBroken(log *zap.Logger) *broken { return &broken{log: log, known: map[run]*trouble{}} }

// begin asks for leave to give an instance a step. What it returns is called once, with what the
// step shows of the instance; it is nil while the instance is left alone.
func (b *broken) begin(in registry.Instance) (ended func(breaker.Result, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	began := time.Now()
	t := b.known[runOf(in)]
	if t == nil {
		return func(v breaker.Result, err error) {
			if v == breaker.Failure {
				b.failed(in, began, err)
			}
		}
	}
	done, _ := t.circuit.Try()
	if done == nil {
		return nil
	}
	return func(v breaker.Result, err error) { b.ended(in, t, began, done, v, err) }
}

// failed notes the first failure of an instance, or one of a step that began before it.
func (b *broken) failed(in registry.Instance, began time.Time, err error) {
	b.mu.Lock()
	t := b.known[runOf(in)]
	if t == nil {
		maps.DeleteFunc(b.known, func(_ run, old *trouble) bool { return time.Since(old.last) > forget })
		t = &trouble{circuit: breaker.New(func(open bool) { b.tell(in, open) })}
		b.known[runOf(in)] = t
	}
	b.mu.Unlock()
	if done, _ := t.circuit.Try(); done != nil {
		b.ended(in, t, began, done, breaker.Failure, err)
	}
}

// ended notes what a step shows. Steps that were under way together when an instance failed,
// such as those of one connection, fail once.
func (b *broken) ended(in registry.Instance, t *trouble, began time.Time, done func(breaker.Result), v breaker.Result, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case v == breaker.Failure && began.Before(t.last):
		v = breaker.Inconclusive
	case v == breaker.Failure:
		t.last, t.err = time.Now(), err
	}
	done(v)
	if t.circuit.IsHealthy() && b.known[runOf(in)] == t {
		delete(b.known, runOf(in))
	}
}

// of are the runs of an agent's instances that are left alone now, and why: errOnTrial of those
// that another step tries, and else how they failed.
func (b *broken) of(agent string) map[run]error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var alone map[run]error
	for who, t := range b.known {
		if who.Agent == agent && t.circuit.IsOpen() {
			if alone == nil {
				alone = map[run]error{}
			}
			alone[who] = t.err
			if t.circuit.InTrial() {
				alone[who] = errOnTrial
			}
		}
	}
	return alone
}

func (b *broken) tell(in registry.Instance, open bool) {
	fields := []zap.Field{zap.String("agent", in.Agent), zap.String("instance", in.ID), zap.Int64("incarnation", in.Incarnation)}
	if open {
		b.log.Warn("instance left alone: it failed its last steps", append(fields, zap.Duration("pause", breaker.OpenFor))...)
		return
	}
	b.log.Info("instance works again", fields...)
}

// judge says what an attempt shows of the instance, and not of the agent, its model, the turn
// or the memory service. A loss counts, and a failure of the system below the agent; to be
// busy, to drain or to be fenced does not, nor what ended because the turn did.
func judge(ctx context.Context, result *troupev1.StepResult, taken bool, err error) (breaker.Result, error) {
	if lost, ok := errors.AsType[*LostError](err); ok {
		if lost.MemoryOutage || failure.Is(lost.Failure, failure.InstanceDraining, failure.Fenced) {
			return breaker.Inconclusive, lost
		}
		return breaker.Failure, lost
	}
	if err != nil || !taken {
		if taken && ctx.Err() == nil && (failure.ModeOf(err) == failure.Unknown || system(err)) {
			return breaker.Failure, err
		}
		return breaker.Inconclusive, err
	}
	if why := grpcfailure.FromProto(result.GetFailure()); why != nil && system(why) {
		return breaker.Failure, why
	}
	return breaker.Success, nil
}

// system reports whether something below the agent failed.
func system(err error) bool {
	return failure.Is(err, failure.SystemNetwork, failure.SystemTimeout, failure.SystemCrash, failure.SystemOOM, failure.SystemDisk)
}
