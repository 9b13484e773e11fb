package conformance

import (
	"context"
	"slices"
	"sync"
	"time"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func stateChecks() []Check {
	return []Check{
		{
			ID: "state/begins-uninitialized", Requirement: "LC-1", run: stateBegins,
			Title: "A new instance is UNINITIALIZED at state_version 0, and says which instance of which agent it is.",
		},
		{
			ID: "state/answers-while-startup-hangs", Requirement: "LC-5", run: stateWhileStartupHangs, alone: true,
			Title: "GetState, GetMetrics, OwnsState and WatchState answer at once while a startup hook hangs.",
		},
		{
			ID: "state/answers-while-shutdown-hangs", Requirement: "LC-5", run: stateWhileShutdownHangs, alone: true,
			Title: "GetState, GetMetrics, OwnsState and WatchState answer at once while a shutdown hook hangs.",
		},
		{
			ID: "state/answers-while-steps-run", Requirement: "LC-5", run: stateWhileStepsRun, alone: true,
			Title: "GetState, GetMetrics, OwnsState and WatchState answer at once at capacity and while a Pause waits.",
		},
		{
			ID: "state/agrees-with-replies", Requirement: "LC-6", run: stateAgrees,
			Title: "What GetState says is never behind the reply of a verb, and a state_version stands for one state.",
		},
		{
			ID: "state/version-counts-transitions", Requirement: "InstanceStatus.state_version", run: stateVersion,
			Title: "state_version grows by exactly 1 with each transition.",
		},
		{
			ID: "state/keeps-the-reason", Requirement: "InstanceStatus.reason", run: stateReason,
			Title: "reason is what the caller of the last verb gave, and since is when the state was entered.",
		},
	}
}

func stateBegins(t *trial) {
	in := t.make(spec{capacity: 7})
	s := in.isIn("of a new instance", uninitialized)
	equal(t, "state_version", 0, s.GetStateVersion())
	equal(t, "capacity", 7, s.GetCapacity())
	equal(t, "in_flight", 0, s.GetInFlight())
	equal(t, "instance_id", in.made.GetInstanceId(), s.GetInstanceId())
	equal(t, "agent", in.made.GetAgent(), s.GetAgent())
	t.that(in.made.GetAgent() != "", "agent of MakeInstanceResponse", "a name", "none")
}

// answers asks everything that must be answered in every state.
func (in *instance) answers() {
	ctx, cancel := context.WithTimeout(in.t.ctx, 3*soon)
	defer cancel()
	for _, q := range []struct {
		name string
		ask  func() error
	}{
		{"GetState", func() error { _, err := in.rpc.GetState(ctx, &troupev1.GetStateRequest{}); return err }},
		{"GetMetrics", func() error { _, err := in.rpc.GetMetrics(ctx, &troupev1.GetMetricsRequest{}); return err }},
		{"OwnsState", func() error {
			_, err := in.rpc.OwnsState(ctx, &troupev1.OwnsStateRequest{Key: "history"})
			return err
		}},
		{"WatchState", func() error { return in.watchFirst(ctx) }},
	} {
		in.t.promptly(q.name, func() time.Duration {
			began := time.Now()
			in.t.ok(q.name, q.ask())
			return time.Since(began)
		})
	}
}

// watchFirst reads the first item of WatchState only.
func (in *instance) watchFirst(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := in.rpc.WatchState(ctx, &troupev1.WatchStateRequest{})
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

func stateWhileStartupHangs(t *trial) {
	in := t.make(spec{startup: hangs, startupTimeout: time.Minute})
	in.starting()
	t.idle(100 * time.Millisecond) // GetState may be what does not answer
	in.answers()
	in.isIn("while the startup hook hangs", initializing)
}

func stateWhileShutdownHangs(t *trial) {
	in := t.ready(spec{shutdown: hangs})
	in.stopping(5 * time.Second)
	t.idle(100 * time.Millisecond)
	in.answers()
	in.isIn("while the shutdown hook hangs", shuttingDown)
}

func stateWhileStepsRun(t *trial) {
	in := t.ready(spec{capacity: 2})
	in.begin("sleep 30s").isAdmitted(t)
	in.begin("sleep 30s").isAdmitted(t)
	in.answers()
	in.pausing("")
	in.isPausing()
	in.answers()
}

// sighting is a status with the time in which it held at some moment.
type sighting struct {
	from, to time.Time
	status   *status
}

func stateAgrees(t *trial) {
	in := t.ready(spec{})
	var mu sync.Mutex
	var seen []sighting
	see := func(ask func() (*status, error)) error {
		from := time.Now()
		s, err := ask()
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, sighting{from, time.Now(), s})
		}
		return err
	}
	look := func() (*status, error) {
		r, err := in.rpc.GetState(t.ctx, &troupev1.GetStateRequest{})
		return r.GetStatus(), err
	}
	stop := make(chan struct{})
	var lookers []*pending[struct{}]
	for range 4 {
		lookers = append(lookers, async(t, func() (struct{}, error) {
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
		t.ok("Pause", see(func() (*status, error) { return in.pause(t.ctx, "") }))
		t.ok("GetState", see(look))
		t.ok("Resume", see(func() (*status, error) { return in.resume(t.ctx, "") }))
		t.ok("GetState", see(look))
	}
	close(stop)
	for _, l := range lookers {
		_, err := l.wait(t, "GetState", soon)
		t.ok("GetState", err)
	}
	linearizable(t, seen)
}

// linearizable demands that each version is one state, and that what was seen later, with
// no overlap, is not older.
func linearizable(t *trial, seen []sighting) {
	states := map[uint64]troupev1.InstanceState{}
	newest := make([]sighting, 0, len(seen)) // by the end of the sighting, with the highest version so far
	for _, s := range seen {                 // in the order of their ends
		version := s.status.GetStateVersion()
		if known, ok := states[version]; ok && known != s.status.GetState() {
			t.failf("the state at state_version %d: expected one, actual %s and %s", version, stateName(known), stateName(s.status.GetState()))
		}
		states[version] = s.status.GetState()
		for _, earlier := range slices.Backward(newest) {
			if earlier.to.Before(s.from) {
				if v := earlier.status.GetStateVersion(); v > version {
					t.failf("state_version that was seen after %d: expected no lower one, actual %d", v, version)
				}
				break
			}
		}
		if n := len(newest); n > 0 && newest[n-1].status.GetStateVersion() > version {
			newest = append(newest, sighting{s.from, s.to, newest[n-1].status})
		} else {
			newest = append(newest, s)
		}
	}
}

func stateVersion(t *trial) {
	in := t.make(spec{})
	expect := uint64(0)
	after := func(what string, transitions uint64) {
		expect += transitions
		equal(t, "state_version after "+what, expect, in.status().GetStateVersion())
	}
	_, err := in.startup(t.ctx)
	t.ok("Startup", err)
	after("Startup", 2)
	equal(t, "answer of a step", "hello", in.says("say hello"))
	after("a step", 2)
	in.begin("fail").end(t, soon)
	after("a step that failed", 2)
	_, err = in.pause(t.ctx, "")
	t.ok("Pause", err)
	after("Pause", 1)
	_, err = in.resume(t.ctx, "")
	t.ok("Resume", err)
	after("Resume", 1)
	_, err = in.shutdown(t.ctx, 0, "")
	t.ok("Shutdown", err)
	after("Shutdown", 2)
}

func stateReason(t *trial) {
	in := t.ready(spec{})
	began := in.status().GetSince().AsTime()
	t.that(!in.status().GetSince().AsTime().IsZero() && in.status().GetSince() != nil, "since", "a time", "none")
	_, err := in.pause(t.ctx, "a new model")
	t.ok("Pause", err)
	s := in.status()
	equal(t, "reason after Pause", "a new model", s.GetReason())
	t.that(!s.GetSince().AsTime().Before(began), "since", "not before that of the state before", s.GetSince().AsTime())
	_, err = in.resume(t.ctx, "the model is there")
	t.ok("Resume", err)
	equal(t, "reason after Resume", "the model is there", in.status().GetReason())
	_, err = in.shutdown(t.ctx, 0, "a new node")
	t.ok("Shutdown", err)
	equal(t, "reason after Shutdown", "a new node", in.status().GetReason())
}
