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

// registrationKeeper registers the instance, keeps the registered state up to date, and sets the readiness of the
// worker. It registers once the registry is reachable, and changes the state to READY in one transaction (contract
// C-34). It removes the registration before a drain (F18). Without the registry the instance still works, but
// orchestrators cannot find it.
//
// It registers READY only after the memory service has answered once, because an earlier step could call models
// without journaling their answers. If the memory service becomes unreachable later, the registration stays.
// Running steps retry their writes, all workers are affected alike, and without registrations no turn would find
// an instance.
type registrationKeeper struct {
	log             *zap.Logger
	registrar       registry.Registrar
	instance        *lifecycle.Instance
	board           *probe.Board
	initialInstance registry.Instance

	memoryReady    chan struct{} // closed once the memory service has answered
	setMemoryReady func()        // closes memoryReady

	mu           sync.Mutex
	registration registry.Registration // (nil before the registration and after deregister)
	deregistered bool
}

func newRegistrationKeeper(log *zap.Logger, r registry.Registrar, i *lifecycle.Instance, b *probe.Board, record registry.Instance) *registrationKeeper {
	memoryReady := make(chan struct{})
	return &registrationKeeper{
		log: log, registrar: r, instance: i, board: b, initialInstance: record,
		memoryReady: memoryReady, setMemoryReady: sync.OnceFunc(func() { close(memoryReady) }),
	}
}

// run registers the instance and keeps the registration up to date until ctx ends. It calls ready once READY is
// registered. It returns an error if the registry rejects the instance.
func (e *registrationKeeper) run(ctx context.Context, ready func()) error {
	watching := make(chan struct{})
	showing, hide := context.WithCancel(ctx)
	go func() { defer close(watching); ShowReadiness(showing, e.instance, e.board) }()
	defer func() { hide(); <-watching }()

	record := e.initialInstance
	record.State = e.registeredState(e.instance.Status().State)
	registration, err := e.registrar.Register(ctx, record)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil // ctx ended before the registry answered
	case err != nil:
		e.log.Error("not registered; orchestrators cannot find the instance", zap.Error(err))
		e.board.Set(conditionRegistry, errors.New("the registration was rejected; the log says why"))
		return err
	case !e.setRegistration(registration):
		_ = registration.Close(context.WithoutCancel(ctx)) // ctx may have ended; without Close the lease would live on
		return nil
	}
	e.board.Set(conditionRegistry, nil)
	keeping := make(chan struct{})
	go func() { defer close(keeping); e.watchLease(ctx, registration) }()
	defer func() { <-keeping }()
	e.registerStates(ctx, registration, record.State, ready)
	return nil
}

// watchLease passes each status of the lease to the instance. EXPIRED makes the worker unready until it is
// registered again (F11); UNKNOWN does not (F9).
func (e *registrationKeeper) watchLease(ctx context.Context, registration registry.Registration) {
	for {
		lease, changed := registration.Lease()
		e.instance.SetLease(lease)
		if lease == lifecycle.LeaseExpired {
			e.board.Set(conditionRegistry, errors.New("the registration was lost and is being renewed"))
			e.log.Warn("the lease has expired; no new steps until the instance is registered again")
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

// registerStates registers each change of the instance's state until the instance shuts down or ctx ends.
func (e *registrationKeeper) registerStates(ctx context.Context, registration registry.Registration, registered lifecycle.State, ready func()) {
	pace := retry.NewBackoff()
	memoryReady := e.memoryReady
	for ctx.Err() == nil {
		status, changed := e.instance.Watch()
		if status.State == lifecycle.ShuttingDown || status.State == lifecycle.Terminated {
			return // deregister removes the registration
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
		case <-memoryReady:
			memoryReady = nil
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

// awaitTerminated returns once the instance has terminated or ctx has ended.
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

// setRegistration stores a new registration. It returns false if the instance was deregistered in the meantime.
func (e *registrationKeeper) setRegistration(r registry.Registration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.deregistered {
		return false
	}
	e.registration = r
	return true
}

// deregister removes the registration for good. No later registration is accepted.
func (e *registrationKeeper) deregister(ctx context.Context) error {
	e.mu.Lock()
	registration := e.registration
	e.registration, e.deregistered = nil, true
	e.mu.Unlock()
	if registration == nil {
		return nil
	}
	return registration.Close(ctx)
}

// registeredState returns the state to register for a lifecycle state. BUSY is registered as READY, because a busy
// instance accepts steps too, and the state would change too often for the registry.
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
