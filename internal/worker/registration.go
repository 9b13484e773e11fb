package worker

import (
	"context"
	"errors"
	"sync"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/probe"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/retry"
)

// registrationKeeper registers the instance, keeps the registered state up to date, and sets the readiness of
// the worker. It registers once the registry is reachable, sets READY in one transaction (contract C-34), and
// removes the registration before a drain (F18). The instance works without the registry, but orchestrators find
// it only there.
//
// READY is registered once the memory service has answered. A step before that could call models without
// journaling their answers. If the memory service becomes unreachable later, the registration stays: running
// steps retry their writes, other workers are in the same situation, and turns would have no instance left.
type registrationKeeper struct {
	log       *zap.Logger
	registrar registry.Registrar
	instance  *lifecycle.Instance
	board     *probe.Board
	record    registry.Instance

	memoryReady chan struct{} // closed once the memory service has answered
	remembered  func()        // closes remembers

	mu           sync.Mutex
	registration registry.Registration // (nil before registration and after leave)
	hasLeft      bool
}

func newRegistrationKeeper(log *zap.Logger, r registry.Registrar, i *lifecycle.Instance, b *probe.Board, record registry.Instance) *registrationKeeper {
	remembers := make(chan struct{})
	return &registrationKeeper{
		log: log, registrar: r, instance: i, board: b, record: record,
		memoryReady: remembers, remembered: sync.OnceFunc(func() { close(remembers) }),
	}
}

// run keeps the registration up to date until ctx ends. It calls ready once READY is registered. It fails if the
// registry rejects the instance.
func (e *registrationKeeper) run(ctx context.Context, ready func()) error {
	watching := make(chan struct{})
	showing, hide := context.WithCancel(ctx)
	go func() { defer close(watching); ShowReadiness(showing, e.instance, e.board) }()
	defer func() { hide(); <-watching }()

	record := e.record
	record.State = e.registeredState(e.instance.Status().State)
	registration, err := e.registrar.Register(ctx, record)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil // ended before the registry answered
	case err != nil:
		e.log.Error("not registered; the instance is not found", zap.Error(err))
		e.board.Set(conditionRegistry, errors.New("the registration was refused; the log says why"))
		return err
	case !e.keepIfStaying(registration):
		_ = registration.Close(context.WithoutCancel(ctx)) // ctx may have ended with the start; the lease would outlive it
		return nil
	}
	e.board.Set(conditionRegistry, nil)
	keeping := make(chan struct{})
	go func() { defer close(keeping); e.followLease(ctx, registration) }()
	defer func() { <-keeping }()
	e.followState(ctx, registration, record.State, ready)
	return nil
}

// followLease passes the state of the lease to the instance. EXPIRED makes the worker unready until it is
// registered again (F11); UNKNOWN does not (F9).
func (e *registrationKeeper) followLease(ctx context.Context, registration registry.Registration) {
	for {
		lease, changed := registration.Lease()
		e.instance.SetLease(lease)
		if lease == lifecycle.LeaseExpired {
			e.board.Set(conditionRegistry, errors.New("the registration is lost and made anew"))
			e.log.Warn("the lease is gone; no new steps until it is registered anew")
		} else {
			e.board.Set(conditionRegistry, nil)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// followState registers each change of state.
func (e *registrationKeeper) followState(ctx context.Context, registration registry.Registration, registered lifecycle.State, ready func()) {
	pace := retry.NewBackoff()
	remembers := e.memoryReady
	for ctx.Err() == nil {
		status, changed := e.instance.Watch()
		if status.State == lifecycle.ShuttingDown || status.State == lifecycle.Terminated {
			return // leave removes the registration
		}
		if want := e.registeredState(status.State); want != registered {
			_, err := retry.Do(ctx, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, registration.SetState(ctx, want)
			})
			switch {
			case err == nil:
				registered = want
				e.log.Info("registered", zap.String("state", string(want)))
			case ctx.Err() == nil:
				e.log.Warn("state not registered; trying again", zap.String("state", string(want)), zap.Error(err))
				_ = pace.Wait(ctx)
				continue
			}
		}
		pace.Reset()
		if registered == lifecycle.Ready {
			ready()
		}
		select {
		case <-changed:
		case <-remembers:
			remembers = nil
		case <-ctx.Done():
			return
		}
	}
}

// ShowReadiness updates the board's lifecycle condition until ctx ends.
func ShowReadiness(ctx context.Context, instance *lifecycle.Instance, board *probe.Board) {
	for {
		status, changed := instance.Watch()
		switch status.State {
		case lifecycle.Ready, lifecycle.Busy:
			board.Set(ConditionLifecycle, nil)
		default:
			board.Set(ConditionLifecycle, errors.New(string(status.State)))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// awaitTerminated returns once the instance has ended, or ctx.
func (e *registrationKeeper) awaitTerminated(ctx context.Context) {
	for {
		status, changed := e.instance.Watch()
		if status.State == lifecycle.Terminated {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// keepIfStaying stores a new registration. It returns false if the instance has left meanwhile.
func (e *registrationKeeper) keepIfStaying(r registry.Registration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hasLeft {
		return false
	}
	e.registration = r
	return true
}

// deregister removes the registration for good.
func (e *registrationKeeper) deregister(ctx context.Context) error {
	e.mu.Lock()
	registration := e.registration
	e.registration, e.hasLeft = nil, true
	e.mu.Unlock()
	if registration == nil {
		return nil
	}
	return registration.Close(ctx)
}

// registeredState returns the state for routing. BUSY is registered as READY: it takes steps as well, and
// changes too often for the registry.
func (e *registrationKeeper) registeredState(s lifecycle.State) lifecycle.State {
	if s != lifecycle.Busy && s != lifecycle.Ready {
		return s
	}
	select {
	case <-e.memoryReady:
		return lifecycle.Ready
	default:
		return lifecycle.Initializing
	}
}
