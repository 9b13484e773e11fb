// Package observation contains the checks of what a worker reports about an instance: its state, its transitions,
// its metrics and the keys that it owns.
package observation

import (
	"slices"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Checks returns the checks of this package in the order of a report.
func Checks() []check.Check {
	return slices.Concat(stateChecks(), watchChecks(), metricsChecks(), ownershipChecks())
}

func stateChecks() []check.Check {
	return []check.Check{
		{
			ID: "state/begins-uninitialized", Requirement: "LC-1", Run: checkStateBeginsUninitialized,
			Title: "A new instance is UNINITIALIZED at state_version 0, and says which instance of which agent it is.",
		},
		{
			ID: "state/answers-while-startup-hangs", Requirement: "LC-5", Run: checkStateWhileStartupHangs, Exclusive: true,
			Title: "GetState, GetMetrics, OwnsState and WatchState answer at once while a startup hook hangs.",
		},
		{
			ID: "state/answers-while-shutdown-hangs", Requirement: "LC-5", Run: checkStateWhileShutdownHangs, Exclusive: true,
			Title: "GetState, GetMetrics, OwnsState and WatchState answer at once while a shutdown hook hangs.",
		},
		{
			ID: "state/answers-while-steps-run", Requirement: "LC-5", Run: checkStateWhileStepsRun, Exclusive: true,
			Title: "GetState, GetMetrics, OwnsState and WatchState answer at once at capacity and while a Pause waits.",
		},
		{
			ID: "state/agrees-with-replies", Requirement: "LC-6", Run: checkStateAgreesWithReplies,
			Title: "GetState is never older than the reply of an earlier verb, and each state_version has one state.",
		},
		{
			ID: "state/version-counts-transitions", Requirement: "InstanceStatus.state_version", Run: checkStateVersionCounts,
			Title: "state_version grows by exactly 1 with each transition.",
		},
		{
			ID: "state/keeps-the-reason", Requirement: "InstanceStatus.reason", Run: checkStateKeepsReason,
			Title: "reason is the one given by the caller of the last verb, and since is when the state was entered.",
		},
	}
}

func checkStateBeginsUninitialized(t *check.T) {
	in := t.MakeInstance(check.InstanceSpec{Capacity: 7})
	s := in.RequireState("of a new instance", check.Uninitialized)
	check.Equal(t, "state_version", 0, s.GetStateVersion())
	check.Equal(t, "capacity", 7, s.GetCapacity())
	check.Equal(t, "in_flight", 0, s.GetInFlight())
	check.Equal(t, "instance_id", in.MakeResponse.GetInstanceId(), s.GetInstanceId())
	check.Equal(t, "agent", in.MakeResponse.GetAgent(), s.GetAgent())
	t.True(in.MakeResponse.GetAgent() != "", "agent of MakeInstanceResponse", "a name", "none")
}

func checkStateWhileStartupHangs(t *check.T) {
	in := t.MakeInstance(check.InstanceSpec{Startup: check.HookHangs, StartupTimeout: time.Minute})
	in.StartupAsync()
	t.Sleep(100 * time.Millisecond) // AwaitState cannot be used, because GetState may hang
	in.RequirePromptAnswers()
	in.RequireState("while the startup hook hangs", check.Initializing)
}

func checkStateWhileShutdownHangs(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{Shutdown: check.HookHangs})
	in.ShutdownAsync(5 * time.Second)
	t.Sleep(100 * time.Millisecond)
	in.RequirePromptAnswers()
	in.RequireState("while the shutdown hook hangs", check.ShuttingDown)
}

func checkStateWhileStepsRun(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{Capacity: 2})
	in.StartStep("sleep 30s").AwaitAdmission(t)
	in.StartStep("sleep 30s").AwaitAdmission(t)
	in.RequirePromptAnswers()
	in.PauseAsync("")
	in.AwaitPausing()
	in.RequirePromptAnswers()
}

// statusReading is a status with the times just before and after it was read.
type statusReading struct {
	from, to time.Time
	status   *check.Status
}

func checkStateAgreesWithReplies(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	var mu sync.Mutex
	var seen []statusReading
	see := func(ask func() (*check.Status, error)) error {
		from := time.Now()
		s, err := ask()
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, statusReading{from, time.Now(), s})
		}
		return err
	}
	look := func() (*check.Status, error) {
		r, err := in.Lifecycle.GetState(t.Ctx, &troupev1.GetStateRequest{})
		return r.GetStatus(), err
	}
	stop := make(chan struct{})
	var lookers []*check.Call[struct{}]
	for range 4 {
		lookers = append(lookers, check.Go(t, func() (struct{}, error) {
			for {
				select {
				case <-stop:
					return struct{}{}, nil
				default:
				}
				if err := see(look); err != nil {
					return struct{}{}, err
				}
			}
		}))
	}
	for range 25 {
		t.NoError("Pause", see(func() (*check.Status, error) { return in.Pause(t.Ctx, "") }))
		t.NoError("GetState", see(look))
		t.NoError("Resume", see(func() (*check.Status, error) { return in.Resume(t.Ctx, "") }))
		t.NoError("GetState", see(look))
	}
	close(stop)
	for _, l := range lookers {
		_, err := l.Wait(t, "GetState", check.AnswerLimit)
		t.NoError("GetState", err)
	}
	requireLinearizable(t, seen)
}

// requireLinearizable requires that each version belongs to one state. A status read after another one, without
// overlap, must not have a lower version.
func requireLinearizable(t *check.T, seen []statusReading) {
	states := map[uint64]troupev1.InstanceState{}
	newest := make([]statusReading, 0, len(seen)) // ordered by end of the reading, with the highest version so far
	for _, s := range seen {                      // readings are ordered by their ends
		version := s.status.GetStateVersion()
		if known, ok := states[version]; ok && known != s.status.GetState() {
			t.Failf("the state at state_version %d: expected one, actual %s and %s", version, check.StateName(known), check.StateName(s.status.GetState()))
		}
		states[version] = s.status.GetState()
		for _, earlier := range slices.Backward(newest) {
			if earlier.to.Before(s.from) {
				if v := earlier.status.GetStateVersion(); v > version {
					t.Failf("state_version that was seen after %d: expected no lower one, actual %d", v, version)
				}
				break
			}
		}
		if n := len(newest); n > 0 && newest[n-1].status.GetStateVersion() > version {
			newest = append(newest, statusReading{s.from, s.to, newest[n-1].status})
		} else {
			newest = append(newest, s)
		}
	}
}

func checkStateVersionCounts(t *check.T) {
	in := t.MakeInstance(check.InstanceSpec{})
	expect := uint64(0)
	after := func(what string, transitions uint64) {
		expect += transitions
		check.Equal(t, "state_version after "+what, expect, in.Status().GetStateVersion())
	}
	_, err := in.Startup(t.Ctx)
	t.NoError("Startup", err)
	after("Startup", 2)
	check.Equal(t, "answer of a step", "hello", in.RunStep("say hello"))
	after("a step", 2)
	in.StartStep("fail").AwaitResult(t, check.AnswerLimit)
	after("a step that failed", 2)
	_, err = in.Pause(t.Ctx, "")
	t.NoError("Pause", err)
	after("Pause", 1)
	_, err = in.Resume(t.Ctx, "")
	t.NoError("Resume", err)
	after("Resume", 1)
	_, err = in.Shutdown(t.Ctx, 0, "")
	t.NoError("Shutdown", err)
	after("Shutdown", 2)
}

func checkStateKeepsReason(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	began := in.Status().GetSince().AsTime()
	t.True(!in.Status().GetSince().AsTime().IsZero() && in.Status().GetSince() != nil, "since", "a time", "none")
	_, err := in.Pause(t.Ctx, "a new model")
	t.NoError("Pause", err)
	s := in.Status()
	check.Equal(t, "reason after Pause", "a new model", s.GetReason())
	t.True(!s.GetSince().AsTime().Before(began), "since", "not before the previous state", s.GetSince().AsTime())
	_, err = in.Resume(t.Ctx, "the model is there")
	t.NoError("Resume", err)
	check.Equal(t, "reason after Resume", "the model is there", in.Status().GetReason())
	_, err = in.Shutdown(t.Ctx, 0, "a new node")
	t.NoError("Shutdown", err)
	check.Equal(t, "reason after Shutdown", "a new node", in.Status().GetReason())
}
