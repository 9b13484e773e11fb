package conformance

import (
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func metricsChecks() []Check {
	return []Check{
		{
			ID: "metrics/zero-at-construction", Requirement: "LC-25", run: metricsZero,
			Title: "All counters of a new instance are zero.",
		},
		{
			ID: "metrics/time-startup-and-shutdown", Requirement: "LC-25", run: metricsTimes,
			Title: "startup_time and shutdown_time are zero before the end of what they measure, and what it took from then on.",
		},
		{
			ID: "metrics/count-transitions", Requirement: "LC-25", run: metricsTransitions,
			Title: "state_transitions is the state_version.",
		},
		{
			ID: "metrics/count-steps", Requirement: "LC-28", run: metricsSteps,
			Title: "total_requests counts the steps that were admitted, failed_requests those that failed, and none that was refused.",
		},
		{
			ID: "metrics/active-time", Requirement: "LC-25", run: metricsActive,
			Title: "active_time is the time with at least one step running; steps at the same time count once.",
		},
		{
			ID: "metrics/only-grow", Requirement: "LC-25", run: metricsGrow,
			Title: "No counter ever goes back.",
		},
	}
}

func metricsZero(t *trial) {
	m := t.make(spec{}).metrics()
	equal(t, "startup_time", 0, m.GetStartupTime().AsDuration())
	equal(t, "shutdown_time", 0, m.GetShutdownTime().AsDuration())
	equal(t, "active_time", 0, m.GetActiveTime().AsDuration())
	equal(t, "total_requests", 0, m.GetTotalRequests())
	equal(t, "failed_requests", 0, m.GetFailedRequests())
	equal(t, "state_transitions", 0, m.GetStateTransitions())
}

func metricsTimes(t *trial) {
	in := t.make(spec{startup: isSlow, shutdown: isSlow})
	const slow, least = 300 * time.Millisecond, 290 * time.Millisecond // timers may be early by a tick
	measured := func(what string, d time.Duration) {
		t.that(d >= least && d < slow+2*time.Second, what+", of a hook that takes 300ms", "about 300ms", d)
	}
	starting := in.starting()
	in.begins()
	if m := in.metrics(); starting.running() {
		equal(t, "startup_time before the end of the start", 0, m.GetStartupTime().AsDuration())
	}
	_, err := starting.wait(t, "Startup", 5*time.Second)
	t.ok("Startup", err)
	m := in.metrics()
	measured("startup_time", m.GetStartupTime().AsDuration())
	equal(t, "shutdown_time of a READY instance", 0, m.GetShutdownTime().AsDuration())
	_, err = in.stopping(5*time.Second).wait(t, "Shutdown", 5*time.Second)
	t.ok("Shutdown", err)
	measured("shutdown_time", in.metrics().GetShutdownTime().AsDuration())
}

func metricsTransitions(t *trial) {
	in := t.whole(func(in *instance) { equal(t, "state_transitions", 0, in.metrics().GetStateTransitions()) })
	equal(t, "state_transitions of a whole life", uint64(len(life)), in.metrics().GetStateTransitions())
	equal(t, "state_version of a whole life", uint64(len(life)), in.status().GetStateVersion())
}

func metricsSteps(t *trial) {
	in := t.ready(spec{capacity: 1})
	for range 3 {
		equal(t, "answer of a step", "hello", in.says("say hello"))
	}
	in.begin("fail").fails(t, soon, troupev1.FailureMode_FAILURE_MODE_AGENT_LOGIC)
	in.begin("panic").fails(t, soon, troupev1.FailureMode_FAILURE_MODE_AGENT_LOGIC)
	running := in.begin("sleep 1s").isAdmitted(t)
	if _, err := in.begin("say no").wait(t, "a step above capacity", soon); running.running() {
		t.refused("a step above capacity", err, failure.InstanceFull)
	}
	running.succeeds(t, soon)
	m := in.metrics()
	equal(t, "total_requests after 6 steps and one that was refused", 6, m.GetTotalRequests())
	equal(t, "failed_requests after 2 steps that failed", 2, m.GetFailedRequests())
}

func metricsActive(t *trial) {
	in := t.ready(spec{})
	equal(t, "active_time before any step", 0, in.metrics().GetActiveTime().AsDuration())
	began := time.Now()
	first, second := in.begin("sleep 300ms"), in.begin("sleep 300ms")
	first.succeeds(t, soon)
	second.succeeds(t, soon)
	most := time.Since(began)
	active := in.metrics().GetActiveTime().AsDuration()
	t.that(active >= 290*time.Millisecond && active <= most+10*time.Millisecond, "active_time of two steps of 300ms at the same time", "between 300ms and "+most.String(), active)
	t.idle(100 * time.Millisecond)
	equal(t, "active_time while no step runs", active, in.metrics().GetActiveTime().AsDuration())
}

func metricsGrow(t *trial) {
	in := t.make(spec{})
	last := in.metrics()
	look := func() {
		m := in.metrics()
		grows := func(name string, before, now int64) {
			t.that(now >= before, name, fmt.Sprintf("at least %d, as before", before), now)
		}
		grows("startup_time", int64(last.GetStartupTime().AsDuration()), int64(m.GetStartupTime().AsDuration()))
		grows("shutdown_time", int64(last.GetShutdownTime().AsDuration()), int64(m.GetShutdownTime().AsDuration()))
		grows("active_time", int64(last.GetActiveTime().AsDuration()), int64(m.GetActiveTime().AsDuration()))
		grows("total_requests", int64(last.GetTotalRequests()), int64(m.GetTotalRequests()))
		grows("failed_requests", int64(last.GetFailedRequests()), int64(m.GetFailedRequests()))
		grows("state_transitions", int64(last.GetStateTransitions()), int64(m.GetStateTransitions()))
		last = m
	}
	_, err := in.startup(t.ctx)
	t.ok("Startup", err)
	look()
	for range 3 {
		s := in.begin("sleep 60ms")
		for s.running() {
			look()
			t.idle(10 * time.Millisecond)
		}
		s.succeeds(t, soon)
		in.begin("fail").end(t, soon)
		look()
	}
	_, err = in.shutdown(t.ctx, 0, "")
	t.ok("Shutdown", err)
	look()
}
