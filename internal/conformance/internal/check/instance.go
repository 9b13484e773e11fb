package check

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

// These are short names for frequently used enum values.
const (
	Uninitialized = troupev1.InstanceState_INSTANCE_STATE_UNINITIALIZED
	Initializing  = troupev1.InstanceState_INSTANCE_STATE_INITIALIZING
	Ready         = troupev1.InstanceState_INSTANCE_STATE_READY
	Busy          = troupev1.InstanceState_INSTANCE_STATE_BUSY
	Paused        = troupev1.InstanceState_INSTANCE_STATE_PAUSED
	ShuttingDown  = troupev1.InstanceState_INSTANCE_STATE_SHUTTING_DOWN
	Terminated    = troupev1.InstanceState_INSTANCE_STATE_TERMINATED

	HookFails      = troupev1.HookBehavior_HOOK_BEHAVIOR_FAIL
	HookPanics     = troupev1.HookBehavior_HOOK_BEHAVIOR_PANIC
	HookHangs      = troupev1.HookBehavior_HOOK_BEHAVIOR_HANG
	HookSlow       = troupev1.HookBehavior_HOOK_BEHAVIOR_SLOW
	HookFailsOnce  = troupev1.HookBehavior_HOOK_BEHAVIOR_FAIL_ONCE
	HookFailsTwice = troupev1.HookBehavior_HOOK_BEHAVIOR_FAIL_TWICE
)

type (
	// Status is the status that an instance reports.
	Status  = troupev1.InstanceStatus
	metrics = troupev1.GetMetricsResponse
)

// InstanceSpec configures an instance for a check.
type InstanceSpec struct {
	Capacity       int32 // (0 means 4)
	Startup        troupev1.HookBehavior
	Shutdown       troupev1.HookBehavior
	StartupTimeout time.Duration // (0 means the worker's default)
	MaxRetries     int32
	KeepFailed     bool
}

// Instance is one instance under test.
type Instance struct {
	t            *T
	MakeResponse *troupev1.MakeInstanceResponse
	Lifecycle    troupev1.LifecycleServiceClient
	agentClient  troupev1.AgentServiceClient
}

// MakeInstance creates an instance in state UNINITIALIZED. The instance is dropped when the check ends.
func (t *T) MakeInstance(s InstanceSpec) *Instance {
	req := &troupev1.MakeInstanceRequest{
		Capacity: s.Capacity, Startup: s.Startup, Shutdown: s.Shutdown,
		MaxRetries: s.MaxRetries, KeepFailed: s.KeepFailed, MemoryAddress: t.Memory.address,
	}
	if s.Capacity == 0 {
		req.Capacity = 4
	}
	if s.StartupTimeout > 0 {
		req.StartupTimeout = durationpb.New(s.StartupTimeout)
	}
	made, err := t.host.MakeInstance(t.Ctx, req)
	t.NoError("MakeInstance", err)
	conn, err := rpc.Dial(made.GetAddress(), telemetry.Discard())
	t.NoError("the address of the instance", err)
	host := t.host
	t.cleanups = append(t.cleanups, func() {
		_ = conn.Close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Ctx), AnswerLimit)
		defer cancel()
		_, _ = host.DropInstance(ctx, &troupev1.DropInstanceRequest{InstanceId: made.GetInstanceId()}) // an error here cannot be handled
	})
	return &Instance{t, made, troupev1.NewLifecycleServiceClient(conn), troupev1.NewAgentServiceClient(conn)}
}

// StartInstance creates an instance and starts it.
func (t *T) StartInstance(s InstanceSpec) *Instance {
	in := t.MakeInstance(s)
	_, err := in.Startup(t.Ctx)
	t.NoError("Startup", err)
	return in
}

// Startup calls Startup and returns the status in its reply.
func (in *Instance) Startup(ctx context.Context) (*Status, error) {
	r, err := in.Lifecycle.Startup(ctx, &troupev1.StartupRequest{})
	return r.GetStatus(), err
}

// Pause calls Pause and returns the status in its reply.
func (in *Instance) Pause(ctx context.Context, reason string) (*Status, error) {
	r, err := in.Lifecycle.Pause(ctx, &troupev1.PauseRequest{Reason: reason})
	return r.GetStatus(), err
}

// Resume calls Resume and returns the status in its reply.
func (in *Instance) Resume(ctx context.Context, reason string) (*Status, error) {
	r, err := in.Lifecycle.Resume(ctx, &troupev1.ResumeRequest{Reason: reason})
	return r.GetStatus(), err
}

// Shutdown calls Shutdown and returns its reply.
func (in *Instance) Shutdown(ctx context.Context, drain time.Duration, reason string) (*troupev1.ShutdownResponse, error) {
	return in.Lifecycle.Shutdown(ctx, &troupev1.ShutdownRequest{Drain: durationpb.New(drain), Reason: reason})
}

// StartupAsync calls Startup in the background.
func (in *Instance) StartupAsync() *Call[*Status] {
	return Go(in.t, func() (*Status, error) { return in.Startup(in.t.Ctx) })
}

// PauseAsync calls Pause in the background.
func (in *Instance) PauseAsync(reason string) *Call[*Status] {
	return Go(in.t, func() (*Status, error) { return in.Pause(in.t.Ctx, reason) })
}

// ShutdownAsync calls Shutdown in the background.
func (in *Instance) ShutdownAsync(drain time.Duration) *Call[*troupev1.ShutdownResponse] {
	return Go(in.t, func() (*troupev1.ShutdownResponse, error) { return in.Shutdown(in.t.Ctx, drain, "") })
}

// Status returns the result of GetState. It fails the check if GetState fails.
func (in *Instance) Status() *Status {
	r, err := in.Lifecycle.GetState(in.t.Ctx, &troupev1.GetStateRequest{})
	in.t.NoError("GetState", err)
	return r.GetStatus()
}

// Metrics returns the result of GetMetrics. It fails the check if GetMetrics fails.
func (in *Instance) Metrics() *metrics {
	r, err := in.Lifecycle.GetMetrics(in.t.Ctx, &troupev1.GetMetricsRequest{})
	in.t.NoError("GetMetrics", err)
	return r
}

// RequireState fails the check unless GetState reports the given state. It returns the whole status.
func (in *Instance) RequireState(when string, state troupev1.InstanceState) *Status {
	s := in.Status()
	Equal(in.t, "state "+when, state, s.GetState())
	return s
}

// AwaitState waits until the instance is in the given state.
func (in *Instance) AwaitState(state troupev1.InstanceState, limit time.Duration) {
	in.t.Eventually(StateName(state), limit, func() (bool, any) {
		s := in.Status().GetState()
		return s == state, StateName(s)
	})
}

// AwaitStartup waits until the instance is no longer UNINITIALIZED.
func (in *Instance) AwaitStartup() {
	in.t.Eventually("a start", AnswerLimit, func() (bool, any) {
		s := in.Status().GetState()
		return s != Uninitialized, StateName(s)
	})
}

// AwaitSteps waits until the given number of steps is in flight.
func (in *Instance) AwaitSteps(steps int32, limit time.Duration) {
	in.t.Eventually(fmt.Sprintf("%d steps in flight", steps), limit, func() (bool, any) {
		n := in.Status().GetInFlight()
		return n == steps, n
	})
}

// RequireUnchanged fails the check if the status differs from before, which was read before a verb that must
// change nothing.
func (in *Instance) RequireUnchanged(verb string, before *Status) {
	after := in.Status()
	in.t.True(proto.Equal(before, after), verb+" changes nothing, so the status", FormatStatus(before), FormatStatus(after))
}

// FormatStatus formats a status for a report.
func FormatStatus(s *Status) string {
	c := proto.CloneOf(s)
	c.InstanceId, c.Agent, c.Version = "", "", ""
	return c.String()
}

// WatchResult holds the items of a WatchState stream, up to its end or to the requested number of items.
type WatchResult struct {
	First       *Status
	Transitions []*troupev1.Transition
	Statuses    []*Status // status sent with each transition
	EndedOK     bool      // whether the worker ended the stream with OK
}

// watchTimeout bounds a watch. It is longer than any sequence of calls that a check makes on one instance.
const watchTimeout = 5 * time.Second

// Watch reads the first status and n transitions from WatchState. If n is negative, it reads all transitions until
// the end of the stream.
func (in *Instance) Watch(ctx context.Context, after uint64, n int) (*WatchResult, error) {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	stream, err := in.Lifecycle.WatchState(ctx, &troupev1.WatchStateRequest{AfterVersion: after})
	if err != nil {
		return nil, err
	}
	w := &WatchResult{}
	for {
		item, err := stream.Recv()
		if done, err := streamEnded(err); done || err != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = fmt.Errorf("the stream had not ended after %s and %d transitions", watchTimeout, len(w.Transitions))
			}
			w.EndedOK = done
			return w, err
		}
		if w.First == nil {
			w.First = item.GetStatus()
			if item.GetTransition() != nil {
				return w, errFirstItem
			}
		} else {
			w.Transitions = append(w.Transitions, item.GetTransition())
			w.Statuses = append(w.Statuses, item.GetStatus())
		}
		if len(w.Transitions) == n {
			return w, nil
		}
	}
}

// Transitions returns all transitions of the instance so far.
func (in *Instance) Transitions() []*troupev1.Transition {
	w, err := in.Watch(in.t.Ctx, 0, int(in.Status().GetStateVersion()))
	in.t.NoError("WatchState", err)
	return w.Transitions
}

// OwnsState returns the reply of OwnsState for a key.
func (in *Instance) OwnsState(key string) *troupev1.OwnsStateResponse {
	r, err := in.Lifecycle.OwnsState(in.t.Ctx, &troupev1.OwnsStateRequest{Key: key})
	in.t.NoError("OwnsState of "+key, err)
	return r
}

// AwaitPausing waits until the status reports that a Pause is pending or done.
func (in *Instance) AwaitPausing() {
	in.t.Eventually("pausing in the status of a BUSY instance", AnswerLimit, func() (bool, any) {
		s := in.Status()
		return s.GetPausing() || s.GetState() == Paused, FormatStatus(s)
	})
}

// RequirePromptAnswers makes every call that must be answered in every state, and fails the check unless all
// answers are prompt.
func (in *Instance) RequirePromptAnswers() {
	ctx, cancel := context.WithTimeout(in.t.Ctx, 3*AnswerLimit)
	defer cancel()
	for _, q := range []struct {
		name string
		ask  func() error
	}{
		{"GetState", func() error { _, err := in.Lifecycle.GetState(ctx, &troupev1.GetStateRequest{}); return err }},
		{"GetMetrics", func() error { _, err := in.Lifecycle.GetMetrics(ctx, &troupev1.GetMetricsRequest{}); return err }},
		{"OwnsState", func() error {
			_, err := in.Lifecycle.OwnsState(ctx, &troupev1.OwnsStateRequest{Key: "history"})
			return err
		}},
		{"WatchState", func() error { return in.watchFirstItem(ctx) }},
	} {
		in.t.AnswersPromptly(q.name, func() time.Duration {
			began := time.Now()
			in.t.NoError(q.name, q.ask())
			return time.Since(began)
		})
	}
}

// watchFirstItem reads only the first item of WatchState.
func (in *Instance) watchFirstItem(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := in.Lifecycle.WatchState(ctx, &troupev1.WatchStateRequest{})
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

// CallVerb calls the named verb and returns the status in its reply, if the reply has one.
func (in *Instance) CallVerb(verb string) (*Status, error) {
	ctx := in.t.Ctx
	switch verb {
	case "startup":
		return in.Startup(ctx)
	case "pause":
		return in.Pause(ctx, "a pause")
	case "resume":
		return in.Resume(ctx, "a resume")
	case "shutdown":
		reply, err := in.Shutdown(ctx, 0, "a shutdown")
		return reply.GetStatus(), err
	case "step":
		s := in.StartStep("say hello")
		o, err := s.Wait(in.t, "ExecuteStep", 5*time.Second)
		if err != nil {
			in.t.True(!o.HasHeader, "a rejected step", "no response header", "one")
			return nil, err
		}
		Equal(in.t, "answer of the step", "hello", s.RequireSuccess(in.t, AnswerLimit).Text())
		return nil, nil //nolint:nilnil // the reply of a step has no status
	default: // queries
		in.RequirePromptAnswers()
		return nil, nil //nolint:nilnil // queries have no status
	}
}
