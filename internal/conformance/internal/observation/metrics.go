package observation

import (
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func metricsChecks() []check.Check {
	return []check.Check{
		{
			ID: "metrics/zero-at-construction", Requirement: "LC-25", Run: checkMetricsBeginAtZero,
			Title: "All counters of a new instance are zero.",
		},
		{
			ID: "metrics/time-startup-and-shutdown", Requirement: "LC-25", Run: checkMetricsTimeStartupAndShutdown,
			Title: "startup_time and shutdown_time are zero until the startup or shutdown ends, and its duration from then on.",
		},
		{
			ID: "metrics/count-transitions", Requirement: "LC-25", Run: checkMetricsCountTransitions,
			Title: "state_transitions equals state_version.",
		},
		{
			ID: "metrics/count-steps", Requirement: "LC-28", Run: checkMetricsCountSteps,
			Title: "total_requests counts admitted steps and failed_requests counts failed steps; rejected steps are not counted.",
		},
		{
			ID: "metrics/active-time", Requirement: "LC-25", Run: checkMetricsActiveTime,
			Title: "active_time is the time with at least one step running; steps at the same time count once.",
		},
		{
			ID: "metrics/only-grow", Requirement: "LC-25", Run: checkMetricsOnlyGrow,
			Title: "No counter ever decreases.",
		},
	}
}

func checkMetricsBeginAtZero(t *check.T) {
	m := t.MakeInstance(check.InstanceSpec{}).Metrics()
	check.Equal(t, "startup_time", 0, m.GetStartupTime().AsDuration())
	check.Equal(t, "shutdown_time", 0, m.GetShutdownTime().AsDuration())
	check.Equal(t, "active_time", 0, m.GetActiveTime().AsDuration())
	check.Equal(t, "total_requests", 0, m.GetTotalRequests())
	check.Equal(t, "failed_requests", 0, m.GetFailedRequests())
	check.Equal(t, "state_transitions", 0, m.GetStateTransitions())
}

func checkMetricsTimeStartupAndShutdown(t *check.T) {
	in := t.MakeInstance(check.InstanceSpec{Startup: check.HookSlow, Shutdown: check.HookSlow})
	const slow, least = 300 * time.Millisecond, 290 * time.Millisecond // timers may be early by a tick
	measured := func(what string, d time.Duration) {
		t.True(d >= least && d < slow+2*time.Second, what+", of a hook that takes 300ms", "about 300ms", d)
	}
	starting := in.StartupAsync()
	in.AwaitStartup()
	if m := in.Metrics(); starting.Running() {
		check.Equal(t, "startup_time before the end of the start", 0, m.GetStartupTime().AsDuration())
	}
	_, err := starting.Wait(t, "Startup", 5*time.Second)
	t.NoError("Startup", err)
	m := in.Metrics()
	measured("startup_time", m.GetStartupTime().AsDuration())
	check.Equal(t, "shutdown_time of a READY instance", 0, m.GetShutdownTime().AsDuration())
	_, err = in.ShutdownAsync(5*time.Second).Wait(t, "Shutdown", 5*time.Second)
	t.NoError("Shutdown", err)
	measured("shutdown_time", in.Metrics().GetShutdownTime().AsDuration())
}

func checkMetricsCountTransitions(t *check.T) {
	in := runWholeLife(t, func(in *check.Instance) { check.Equal(t, "state_transitions", 0, in.Metrics().GetStateTransitions()) })
	check.Equal(t, "state_transitions of a whole life", uint64(len(lifeStates)), in.Metrics().GetStateTransitions())
	check.Equal(t, "state_version of a whole life", uint64(len(lifeStates)), in.Status().GetStateVersion())
}

func checkMetricsCountSteps(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{Capacity: 1})
	for range 3 {
		check.Equal(t, "answer of a step", "hello", in.RunStep("say hello"))
	}
	in.StartStep("fail").RequireFailure(t, check.AnswerLimit, troupev1.FailureMode_FAILURE_MODE_AGENT_LOGIC)
	in.StartStep("panic").RequireFailure(t, check.AnswerLimit, troupev1.FailureMode_FAILURE_MODE_AGENT_LOGIC)
	running := in.StartStep("sleep 1s").AwaitAdmission(t)
	if _, err := in.StartStep("say no").Wait(t, "a step above capacity", check.AnswerLimit); running.Running() {
		t.ErrorHasMode("a step above capacity", err, failure.InstanceFull)
	}
	running.RequireSuccess(t, check.AnswerLimit)
	m := in.Metrics()
	check.Equal(t, "total_requests after 6 steps and a rejected one", 6, m.GetTotalRequests())
	check.Equal(t, "failed_requests after 2 steps that failed", 2, m.GetFailedRequests())
}

func checkMetricsActiveTime(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	check.Equal(t, "active_time before any step", 0, in.Metrics().GetActiveTime().AsDuration())
	began := time.Now()
	first, second := in.StartStep("sleep 300ms"), in.StartStep("sleep 300ms")
	first.RequireSuccess(t, check.AnswerLimit)
	second.RequireSuccess(t, check.AnswerLimit)
	most := time.Since(began)
	active := in.Metrics().GetActiveTime().AsDuration()
	t.True(active >= 290*time.Millisecond && active <= most+10*time.Millisecond, "active_time of two steps of 300ms at the same time",
		"between 300ms and "+most.String(), active)
	t.Sleep(100 * time.Millisecond)
	check.Equal(t, "active_time while no step runs", active, in.Metrics().GetActiveTime().AsDuration())
}

func checkMetricsOnlyGrow(t *check.T) {
	in := t.MakeInstance(check.InstanceSpec{})
	last := in.Metrics()
	look := func() {
		m := in.Metrics()
		grows := func(name string, before, now int64) {
			t.True(now >= before, name, fmt.Sprintf("at least %d, as before", before), now)
		}
		grows("startup_time", int64(last.GetStartupTime().AsDuration()), int64(m.GetStartupTime().AsDuration()))
		grows("shutdown_time", int64(last.GetShutdownTime().AsDuration()), int64(m.GetShutdownTime().AsDuration()))
		grows("active_time", int64(last.GetActiveTime().AsDuration()), int64(m.GetActiveTime().AsDuration()))
		grows("total_requests", int64(last.GetTotalRequests()), int64(m.GetTotalRequests()))
		grows("failed_requests", int64(last.GetFailedRequests()), int64(m.GetFailedRequests()))
		grows("state_transitions", int64(last.GetStateTransitions()), int64(m.GetStateTransitions()))
		last = m
	}
	_, err := in.Startup(t.Ctx)
	t.NoError("Startup", err)
	look()
	for range 3 {
		s := in.StartStep("sleep 60ms")
		for s.Running() {
			look()
			t.Sleep(10 * time.Millisecond)
		}
		s.RequireSuccess(t, check.AnswerLimit)
		in.StartStep("fail").AwaitResult(t, check.AnswerLimit)
		look()
	}
	_, err = in.Shutdown(t.Ctx, 0, "")
	t.NoError("Shutdown", err)
	look()
}
