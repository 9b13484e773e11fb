package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// referenceInstance is an instance that follows every rule, for the tests of this package only. It has one lock
// and one broadcast channel. The calls of hasFault mark the places of the planted faults.
type referenceInstance struct {
	troupev1.UnimplementedLifecycleServiceServer
	troupev1.UnimplementedAgentServiceServer
	fault  fault
	spec   *troupev1.MakeInstanceRequest
	memory troupev1.MemoryServiceClient

	dropped chan struct{} // closed to end hanging hooks
	hooks   sync.WaitGroup

	mu               sync.Mutex
	status           *troupev1.InstanceStatus
	metrics          *troupev1.GetMetricsResponse
	busySince        time.Time
	history          []*troupev1.Transition
	changed          chan struct{} // closed and replaced at each change
	waitingPauses    int           // number of Pause calls that wait
	steps            map[*admittedStep]struct{}
	hookRunning      bool
	startup          *operation
	shutdown         *operation
	shutdownDeadline time.Time // of the shutdown
	startHookDone    chan struct{}
}

type operation struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

type admittedStep struct{ cancel context.CancelCauseFunc }

func newReference(id string, spec *troupev1.MakeInstanceRequest, memory troupev1.MemoryServiceClient, f fault) *referenceInstance {
	return &referenceInstance{
		fault: f, spec: spec, memory: memory,
		dropped: make(chan struct{}), changed: make(chan struct{}), startHookDone: make(chan struct{}), steps: map[*admittedStep]struct{}{},
		metrics: &troupev1.GetMetricsResponse{},
		status: &troupev1.InstanceStatus{
			State: check.Uninitialized, Capacity: spec.GetCapacity(), Since: timestamppb.Now(), InstanceId: id, Agent: agentName,
		},
	}
}

func (r *referenceInstance) hasFault(f fault) bool { return r.fault == f }

// transition changes the state and records the transition. The caller must hold the lock.
func (r *referenceInstance) transition(ctx context.Context, s troupev1.InstanceState, reason string) {
	now := time.Now()
	from := r.status.State
	if from == check.Busy {
		r.metrics.ActiveTime = durationpb.New(r.metrics.ActiveTime.AsDuration() + now.Sub(r.busySince))
	}
	if s == check.Busy {
		r.busySince = now
		if r.hasFault(resetsActiveTime) {
			r.metrics.ActiveTime = nil
		}
	}
	r.status.State, r.status.Since, r.status.Reason = s, timestamppb.New(now), reason
	r.status.StateVersion++
	if r.hasFault(skipsVersion) && s == check.Paused {
		r.status.StateVersion++
	}
	r.metrics.StateTransitions++
	if r.hasFault(omitsReasons) {
		reason = ""
	}
	r.history = append(r.history, &troupev1.Transition{
		From: from, To: s, Version: r.status.StateVersion, Time: timestamppb.New(now), Reason: reason, TraceId: traceFromContext(ctx),
	})
	r.notifyWatchers()
}

func (r *referenceInstance) notifyWatchers() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// await waits until the condition holds, the time is up, or ctx ends, and reports whether the condition holds. The
// caller must hold the lock. await releases it while it waits.
func (r *referenceInstance) await(ctx context.Context, until func() time.Time, holds func() bool) bool {
	for !holds() {
		changed := r.changed
		timer := time.NewTimer(time.Until(until()))
		r.mu.Unlock()
		passed := false
		select {
		case <-changed:
		case <-timer.C:
			passed = true
		case <-ctx.Done():
			passed = true
		}
		timer.Stop()
		r.mu.Lock()
		if passed {
			return holds()
		}
	}
	return true
}

func farFuture() time.Time { return time.Now().Add(time.Hour) }

func (r *referenceInstance) currentStatus() *troupev1.InstanceStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return proto.CloneOf(r.status)
}

// runHook runs a hook, converts its panic to an error, and abandons it when ctx ends.
func (r *referenceInstance) runHook(ctx context.Context, b troupev1.HookBehavior, try int) error {
	done := make(chan error, 1)
	r.hooks.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("panic: %v", p)
			}
		}()
		done <- r.runHookBehavior(ctx, b, try)
	})
	ended := ctx.Done()
	if r.hasFault(waitsForHangingHooks) {
		ended = nil
	}
	select {
	case err := <-done:
		return err
	case <-ended:
		return ctx.Err()
	}
}

func (r *referenceInstance) runHookBehavior(ctx context.Context, b troupev1.HookBehavior, try int) error {
	switch {
	case b == check.HookFails, b == check.HookFailsOnce && try < 1, b == check.HookFailsTwice && try < 2:
		return errors.New("the hook failed")
	case b == check.HookPanics:
		panic("the hook threw")
	case b == check.HookHangs:
		<-r.dropped
	case b == check.HookSlow:
		return sleep(ctx, 300*time.Millisecond)
	}
	return nil
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newWrongStateError(verb string, s *troupev1.InstanceStatus, required string) error {
	name := map[troupev1.InstanceState]string{
		check.Uninitialized: "uninitialized", check.Initializing: "initializing", check.Ready: "ready", check.Busy: "busy", check.Paused: "paused", check.ShuttingDown: "shutting_down", check.Terminated: "terminated",
	}
	return failure.New(failure.AgentState, verb, "the instance is in another state").
		With("actual_state", name[s.State]).With("required_state", required)
}

func (r *referenceInstance) isShutDown() bool {
	return r.status.State == check.ShuttingDown || r.status.State == check.Terminated
}

// Startup implements troupev1.LifecycleServiceServer.
func (r *referenceInstance) Startup(ctx context.Context, req *troupev1.StartupRequest) (*troupev1.StartupResponse, error) {
	r.mu.Lock()
	if err := r.checkVersion(req.IfStateVersion); err != nil {
		r.mu.Unlock()
		return nil, err
	}
	if r.hasFault(restartsAfterTerminated) && r.status.State == check.Terminated {
		r.transition(ctx, check.Ready, "")
		r.mu.Unlock()
		return &troupev1.StartupResponse{Status: r.currentStatus()}, nil
	}
	if r.isShutDown() && !r.hasFault(runsStartHookPerCaller) {
		defer r.mu.Unlock()
		return nil, newWrongStateError("Startup", r.status, "uninitialized")
	}
	if r.startup == nil {
		timeout := 30 * time.Second
		if r.spec.StartupTimeout != nil && !r.hasFault(ignoresStartupTimeout) {
			timeout = r.spec.StartupTimeout.AsDuration()
		}
		if deadline, ok := ctx.Deadline(); ok {
			timeout = min(timeout, time.Until(deadline))
		}
		whole := context.WithoutCancel(ctx)
		if r.hasFault(cancelsStartupWithCaller) {
			whole = ctx
		}
		run, cancel := context.WithTimeout(whole, timeout)
		r.startup = &operation{cancel: cancel, done: make(chan struct{})}
		r.transition(ctx, check.Initializing, "")
		go r.runStartup(run, r.startup)
	} else if r.hasFault(runsStartHookPerCaller) && r.status.State != check.Ready {
		first := r.startup
		r.mu.Unlock()
		if err := r.runHookBehavior(ctx, r.spec.Startup, 2); err != nil {
			return nil, err
		}
		select {
		case <-first.done:
		case <-ctx.Done():
		}
		return &troupev1.StartupResponse{Status: r.currentStatus()}, nil
	}
	start := r.startup
	r.mu.Unlock()
	select {
	case <-start.done:
		return &troupev1.StartupResponse{Status: r.currentStatus()}, start.err
	case <-ctx.Done():
		return nil, failure.New(failure.AgentTimeout, "Startup", "the deadline of the caller passed")
	}
}

func (r *referenceInstance) runStartup(ctx context.Context, a *operation) {
	defer close(a.done)
	defer a.cancel()
	began := time.Now()
	err := r.tryStartup(ctx)
	r.mu.Lock()
	close(r.startHookDone)
	r.metrics.StartupTime = durationpb.New(time.Since(began))
	if err == nil && r.status.State == check.Initializing {
		r.transition(ctx, check.Ready, "")
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	mode := failure.AgentLogic
	if errors.Is(err, context.DeadlineExceeded) {
		mode = failure.AgentTimeout
	}
	a.err = failure.New(mode, "Startup", "the start failed").Because(err)
	if !r.spec.KeepFailed || r.hasFault(ignoresKeepFailed) {
		<-r.beginShutdown(ctx, time.Second, "the start failed").done
	}
}

func (r *referenceInstance) tryStartup(ctx context.Context) (err error) {
	r.mu.Lock()
	r.hookRunning = true
	r.mu.Unlock()
	retries := int(r.spec.MaxRetries)
	switch {
	case r.hasFault(neverRetriesStartup):
		retries = 0
	case r.hasFault(retriesStartupTooOften) && retries > 0:
		retries = 40
	}
	for try := range retries + 1 {
		if err = r.runHook(ctx, r.spec.Startup, try); err == nil || ctx.Err() != nil || try == retries {
			break
		}
		if !r.hasFault(keepsFailedResources) && r.runHook(ctx, r.spec.Shutdown, 0) != nil {
			break
		}
	}
	r.mu.Lock()
	r.hookRunning = false
	r.notifyWatchers()
	r.mu.Unlock()
	return err
}

// Shutdown implements troupev1.LifecycleServiceServer.
func (r *referenceInstance) Shutdown(ctx context.Context, req *troupev1.ShutdownRequest) (*troupev1.ShutdownResponse, error) {
	r.mu.Lock()
	err := r.checkVersion(req.IfStateVersion)
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	stop := r.beginShutdown(ctx, req.GetDrain().AsDuration(), req.GetReason())
	select {
	case <-stop.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	reply := &troupev1.ShutdownResponse{Status: r.currentStatus()}
	if stop.err != nil {
		if r.hasFault(shutdownErrors) {
			return nil, stop.err
		}
		reply.Errors = []string{stop.err.Error()}
	}
	return reply, nil
}

func (r *referenceInstance) beginShutdown(ctx context.Context, drain time.Duration, reason string) *operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	deadline := time.Now().Add(drain)
	if r.shutdown != nil {
		shorter := deadline.Before(r.shutdownDeadline)
		if shorter && !r.hasFault(neverShortensDeadline) || !shorter && r.hasFault(extendsDeadline) {
			r.shutdownDeadline = deadline
			r.notifyWatchers()
		}
		return r.shutdown
	}
	r.shutdown, r.shutdownDeadline = &operation{done: make(chan struct{})}, deadline
	if r.startup != nil {
		r.startup.cancel()
	}
	r.status.Pausing, r.status.Draining = false, r.status.InFlight > 0
	r.transition(ctx, check.ShuttingDown, reason)
	go r.runShutdown(context.WithoutCancel(ctx), r.shutdown, r.startup != nil || r.hasFault(stopsUnstartedInstance), reason)
	return r.shutdown
}

func (r *referenceInstance) runShutdown(ctx context.Context, a *operation, started bool, reason string) {
	defer close(a.done)
	began := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if started && r.startup != nil {
		r.mu.Unlock()
		<-r.startHookDone
		r.mu.Lock()
	}
	idle := func() bool { return r.status.InFlight == 0 }
	if !r.await(ctx, func() time.Time { return r.shutdownDeadline }, idle) {
		for s := range r.steps {
			s.cancel(failure.New(failure.InstanceDraining, "Shutdown", "the worker stopped first"))
		}
		r.status.Draining = false
		r.notifyWatchers()
		r.await(ctx, func() time.Time { return r.shutdownDeadline.Add(400 * time.Millisecond) }, idle)
	}
	if started {
		hookCtx, cancel := context.WithDeadline(ctx, r.shutdownDeadline.Add(600*time.Millisecond))
		r.mu.Unlock()
		a.err = r.runHook(hookCtx, r.spec.Shutdown, 0)
		cancel()
		r.mu.Lock()
	}
	r.metrics.ShutdownTime = durationpb.New(time.Since(began))
	r.status.Draining = false
	r.transition(ctx, check.Terminated, reason)
}
