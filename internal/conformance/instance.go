package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Short names for what checks write most.
const (
	uninitialized = troupev1.InstanceState_INSTANCE_STATE_UNINITIALIZED
	initializing  = troupev1.InstanceState_INSTANCE_STATE_INITIALIZING
	ready         = troupev1.InstanceState_INSTANCE_STATE_READY
	busy          = troupev1.InstanceState_INSTANCE_STATE_BUSY
	paused        = troupev1.InstanceState_INSTANCE_STATE_PAUSED
	shuttingDown  = troupev1.InstanceState_INSTANCE_STATE_SHUTTING_DOWN
	terminated    = troupev1.InstanceState_INSTANCE_STATE_TERMINATED

	fails      = troupev1.HookBehavior_HOOK_BEHAVIOR_FAIL
	panics     = troupev1.HookBehavior_HOOK_BEHAVIOR_PANIC
	hangs      = troupev1.HookBehavior_HOOK_BEHAVIOR_HANG
	isSlow     = troupev1.HookBehavior_HOOK_BEHAVIOR_SLOW
	failsOnce  = troupev1.HookBehavior_HOOK_BEHAVIOR_FAIL_ONCE
	failsTwice = troupev1.HookBehavior_HOOK_BEHAVIOR_FAIL_TWICE
)

type (
	status  = troupev1.InstanceStatus
	metrics = troupev1.GetMetricsResponse
)

// spec describes the instance that a check wants.
type spec struct {
	capacity       int32 // 0: 4
	startup        troupev1.HookBehavior
	shutdown       troupev1.HookBehavior
	startupTimeout time.Duration // 0: the worker's default
	maxRetries     int32
	keepFailed     bool
}

// instance is one instance under test.
type instance struct {
	t       *trial
	made    *troupev1.MakeInstanceResponse
	rpc     troupev1.LifecycleServiceClient
	stepper troupev1.AgentServiceClient
}

// make makes an instance in UNINITIALIZED, which is dropped when the check ends.
func (t *trial) make(s spec) *instance {
	req := &troupev1.MakeInstanceRequest{
		Capacity: s.capacity, Startup: s.startup, Shutdown: s.shutdown,
		MaxRetries: s.maxRetries, KeepFailed: s.keepFailed, MemoryAddress: t.memory.address,
	}
	if s.capacity == 0 {
		req.Capacity = 4
	}
	if s.startupTimeout > 0 {
		req.StartupTimeout = durationpb.New(s.startupTimeout)
	}
	made, err := t.host.MakeInstance(t.ctx, req)
	t.ok("MakeInstance", err)
	conn, err := rpc.Dial(made.GetAddress(), telemetry.Discard())
	t.ok("the address of the instance", err)
	host := t.host
	t.drops = append(t.drops, func() {
		_ = conn.Close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), soon)
		defer cancel()
		_, _ = host.DropInstance(ctx, &troupev1.DropInstanceRequest{InstanceId: made.GetInstanceId()}) // there is nothing to do about it
	})
	return &instance{t, made, troupev1.NewLifecycleServiceClient(conn), troupev1.NewAgentServiceClient(conn)}
}

// ready makes an instance and starts it.
func (t *trial) ready(s spec) *instance {
	in := t.make(s)
	_, err := in.startup(t.ctx)
	t.ok("Startup", err)
	return in
}

func (in *instance) startup(ctx context.Context) (*status, error) {
	r, err := in.rpc.Startup(ctx, &troupev1.StartupRequest{})
	return r.GetStatus(), err
}

func (in *instance) pause(ctx context.Context, reason string) (*status, error) {
	r, err := in.rpc.Pause(ctx, &troupev1.PauseRequest{Reason: reason})
	return r.GetStatus(), err
}

func (in *instance) resume(ctx context.Context, reason string) (*status, error) {
	r, err := in.rpc.Resume(ctx, &troupev1.ResumeRequest{Reason: reason})
	return r.GetStatus(), err
}

func (in *instance) shutdown(ctx context.Context, drain time.Duration, reason string) (*troupev1.ShutdownResponse, error) {
	return in.rpc.Shutdown(ctx, &troupev1.ShutdownRequest{Drain: durationpb.New(drain), Reason: reason})
}

// starting is a Startup in the background.
func (in *instance) starting() *pending[*status] {
	return async(in.t, func() (*status, error) { return in.startup(in.t.ctx) })
}

// pausing is a Pause in the background.
func (in *instance) pausing(reason string) *pending[*status] {
	return async(in.t, func() (*status, error) { return in.pause(in.t.ctx, reason) })
}

// stopping is a Shutdown in the background.
func (in *instance) stopping(drain time.Duration) *pending[*troupev1.ShutdownResponse] {
	return async(in.t, func() (*troupev1.ShutdownResponse, error) { return in.shutdown(in.t.ctx, drain, "") })
}

// status is where the instance stands by GetState, which never fails.
func (in *instance) status() *status {
	r, err := in.rpc.GetState(in.t.ctx, &troupev1.GetStateRequest{})
	in.t.ok("GetState", err)
	return r.GetStatus()
}

// metrics are the counters, which never fail to come.
func (in *instance) metrics() *metrics {
	r, err := in.rpc.GetMetrics(in.t.ctx, &troupev1.GetMetricsRequest{})
	in.t.ok("GetMetrics", err)
	return r
}

// isIn demands the state by GetState, and returns the whole status.
func (in *instance) isIn(when string, state troupev1.InstanceState) *status {
	s := in.status()
	equal(in.t, "state "+when, state, s.GetState())
	return s
}

// becomes waits for a state.
func (in *instance) becomes(state troupev1.InstanceState, limit time.Duration) {
	in.t.until(stateName(state), limit, func() (bool, any) {
		s := in.status().GetState()
		return s == state, stateName(s)
	})
}

// begins waits until the instance is no longer UNINITIALIZED.
func (in *instance) begins() {
	in.t.until("a start", soon, func() (bool, any) {
		s := in.status().GetState()
		return s != uninitialized, stateName(s)
	})
}

// runs waits until so many steps run.
func (in *instance) runs(steps int32, limit time.Duration) {
	in.t.until(fmt.Sprintf("%d steps in flight", steps), limit, func() (bool, any) {
		n := in.status().GetInFlight()
		return n == steps, n
	})
}

// unchanged demands that the status is what it was before a verb that changes nothing.
func (in *instance) unchanged(verb string, before *status) {
	after := in.status()
	in.t.that(proto.Equal(before, after), verb+" changes nothing, so the status", brieflyStatus(before), brieflyStatus(after))
}

func brieflyStatus(s *status) string {
	c := proto.CloneOf(s)
	c.InstanceId, c.Agent, c.Version = "", "", ""
	return c.String()
}

// watched is a WatchState that was read to its end, or until enough items had come.
type watched struct {
	first       *status
	transitions []*troupev1.Transition
	statuses    []*status // with the transitions
	ended       bool      // by the worker, with OK
}

// watchTime bounds a watch; nothing that a check does to an instance takes that long.
const watchTime = 5 * time.Second

// watch reads transitions: all to the end of the stream when n is below 0, else n of them.
func (in *instance) watch(ctx context.Context, after uint64, n int) (*watched, error) {
	ctx, cancel := context.WithTimeout(ctx, watchTime)
	defer cancel()
	stream, err := in.rpc.WatchState(ctx, &troupev1.WatchStateRequest{AfterVersion: after})
	if err != nil {
		return nil, err
	}
	w := &watched{}
	for {
		item, err := stream.Recv()
		if done, err := ending(err); done || err != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = fmt.Errorf("the stream had not ended after %s and %d transitions", watchTime, len(w.transitions))
			}
			w.ended = done
			return w, err
		}
		if w.first == nil {
			w.first = item.GetStatus()
			if item.GetTransition() != nil {
				return w, errFirstItem
			}
		} else {
			w.transitions = append(w.transitions, item.GetTransition())
			w.statuses = append(w.statuses, item.GetStatus())
		}
		if len(w.transitions) == n {
			return w, nil
		}
	}
}

// history is every transition so far, of an instance of which versions are known.
func (in *instance) history() []*troupev1.Transition {
	w, err := in.watch(in.t.ctx, 0, int(in.status().GetStateVersion()))
	in.t.ok("WatchState", err)
	return w.transitions
}
