package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/probe"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/retry"
)

// registrationKeeper registers the instance, keeps the registered state up to date, and sets the readiness of the
// worker. It registers once the registry is reachable, and changes the state to READY in one transaction (contract
// C-34). It removes the registration before a drain (guarantee F18). Without the registry the instance still works, but
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

	leaseGrace time.Duration // how long a lost registration may take to be renewed
	onLost     func()        // called once the renewal has taken longer than leaseGrace

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
		leaseGrace: defaultLeaseGrace, onLost: func() {},
		memoryReady: memoryReady, setMemoryReady: sync.OnceFunc(func() { close(memoryReady) }),
	}
}

// run registers the instance and keeps the registration up to date until ctx ends. It calls ready once READY is
// registered. It returns an error if the registry rejects the instance.
func (k *registrationKeeper) run(ctx context.Context, ready func()) error {
	watching := make(chan struct{})
	showing, hide := context.WithCancel(ctx)
	go func() { defer close(watching); ShowReadiness(showing, k.instance, k.board) }()
	defer func() { hide(); <-watching }()

	record := k.initialInstance
	record.State = k.registeredState(k.instance.Status().State)
	registration, err := k.registrar.Register(ctx, record)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil // ctx ended before the registry answered
	case err != nil:
		k.log.Error("not registered; orchestrators cannot find the instance", zap.Error(err))
		k.board.Set(conditionRegistry, errors.New("the registration was rejected; the log says why"))
		return err
	case !k.setRegistration(registration):
		_ = registration.Close(context.WithoutCancel(ctx)) // ctx may have ended; without Close the lease would live on
		return nil
	}
	k.board.Set(conditionRegistry, nil)
	keeping := make(chan struct{})
	go func() { defer close(keeping); k.watchLease(ctx, registration) }()
	defer func() { <-keeping }()
	k.registerStates(ctx, registration, record.State, ready)
	return nil
}

// defaultLeaseGrace is four times as long as a lease lives without renewal.
const defaultLeaseGrace = time.Minute

// watchLease passes each status of the lease to the instance. EXPIRED makes the worker unready until it is
// registered again (guarantee F11); UNKNOWN does not (guarantee F9). A registration that cannot be renewed within leaseGrace is lost (LC-39).
func (k *registrationKeeper) watchLease(ctx context.Context, registration registry.Registration) {
	var expired *time.Timer // (nil while the lease has not expired)
	defer func() {
		if expired != nil {
			expired.Stop()
		}
	}()
	for {
		lease, changed := registration.Lease()
		k.instance.SetLease(lease)
		switch {
		case lease != lifecycle.LeaseExpired:
			k.board.Set(conditionRegistry, nil)
			if expired != nil {
				expired.Stop()
				expired = nil
			}
		case expired == nil:
			k.board.Set(conditionRegistry, errors.New("the registration was lost and is being renewed"))
			k.log.Warn("the lease has expired; no new steps until the instance is registered again", zap.Duration("grace", k.leaseGrace))
			expired = time.AfterFunc(k.leaseGrace, k.onLost)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// registerStates registers each change of the instance's state until the instance shuts down or ctx ends. It calls
// ready when READY is registered.
func (k *registrationKeeper) registerStates(ctx context.Context, registration registry.Registration, registered lifecycle.State, ready func()) {
	pace := retry.NewBackoff()
	memoryReady := k.memoryReady
	for ctx.Err() == nil {
		status, changed := k.instance.Watch()
		if status.State == lifecycle.ShuttingDown || status.State == lifecycle.Terminated {
			return // deregister removes the registration
		}
		if want := k.registeredState(status.State); want != registered {
			_, err := retry.Do(ctx, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, registration.SetState(ctx, want)
			})
			switch {
			case err == nil:
				registered = want
				k.log.Info("registered", zap.String("state", string(want)))
			case ctx.Err() == nil:
				k.log.Warn("state not registered; trying again", zap.String("state", string(want)), zap.Error(err))
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
func (k *registrationKeeper) awaitTerminated(ctx context.Context) {
	for {
		status, changed := k.instance.Watch()
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
func (k *registrationKeeper) setRegistration(r registry.Registration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.deregistered {
		return false
	}
	k.registration = r
	return true
}

// deregister removes the registration for good. No later registration is accepted.
func (k *registrationKeeper) deregister(ctx context.Context) error {
	k.mu.Lock()
	registration := k.registration
	k.registration, k.deregistered = nil, true
	k.mu.Unlock()
	if registration == nil {
		return nil
	}
	return registration.Close(ctx)
}

// registeredState returns the state to register for a lifecycle state. BUSY is registered as READY, because a busy
// instance accepts steps too, and the state would change too often for the registry. Until the memory service has
// answered once, both are registered as INITIALIZING.
func (k *registrationKeeper) registeredState(s lifecycle.State) lifecycle.State {
	if s != lifecycle.Busy && s != lifecycle.Ready {
		return s
	}
	select {
	case <-k.memoryReady:
		return lifecycle.Ready
	default:
		return lifecycle.Initializing
	}
}
