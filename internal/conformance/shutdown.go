package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// forced is what a shutdown may take beyond its deadline.
const forced = time.Second

func shutdownChecks() []Check {
	return []Check{
		{
			ID: "shutdown/drains", Requirement: "LC-29c", run: shutdownDrains,
			Title: "Steps that end within the drain end as always: answered, and committed.",
		},
		{
			ID: "shutdown/cancels-at-the-deadline", Requirement: "LC-29c", run: shutdownCancels(500 * time.Millisecond),
			Title: "Steps that do not end within the drain are cancelled: INSTANCE_DRAINING, nothing committed, TERMINATED a second later at most.",
		},
		{
			ID: "shutdown/zero-drain-cancels-at-once", Requirement: "ShutdownRequest.drain", run: shutdownCancels(0),
			Title: "With a drain of zero running steps are cancelled at once.",
		},
		{
			ID: "shutdown/deadline-shrinks", Requirement: "LifecycleService.Shutdown", run: shutdownShrinks,
			Title: "A later Shutdown with a shorter drain shortens the one that runs.",
		},
		{
			ID: "shutdown/deadline-never-grows", Requirement: "LifecycleService.Shutdown", run: shutdownNeverGrows,
			Title: "A later Shutdown with a longer drain does not lengthen the one that runs.",
		},
		{
			ID: "shutdown/says-that-it-drains", Requirement: "InstanceStatus.draining", run: shutdownSays,
			Title: "draining is set while steps may still end, and not before.",
		},
		{
			ID: "shutdown/drains-no-longer-than-steps-run", Requirement: "InstanceStatus.draining", run: shutdownDrained,
			Title: "draining is no longer set when the last step has ended, though the shutdown goes on.",
		},
		{
			ID: "shutdown/failing-hook-is-reported", Requirement: "LC-17", run: shutdownHook(fails),
			Title: "When the shutdown hook fails the reply is OK and names it in errors, and the instance is TERMINATED.",
		},
		{
			ID: "shutdown/panicking-hook-is-reported", Requirement: "LC-17", run: shutdownHook(panics),
			Title: "When the shutdown hook throws the reply is OK and names it in errors, and the instance is TERMINATED.",
		},
		{
			ID: "shutdown/hanging-hook-is-given-up", Requirement: "LC-19", run: shutdownHook(hangs),
			Title: "A shutdown hook that does not return is given up: TERMINATED within the deadline and a second.",
		},
		{
			ID: "shutdown/joins-concurrent-callers", Requirement: "LC-20", run: shutdownJoins,
			Title: "Concurrent calls join one shutdown: all return TERMINATED, and it makes two transitions in all.",
		},
		{
			ID: "shutdown/of-an-unused-instance-releases-nothing", Requirement: "LC-22", run: shutdownUnused,
			Title: "Shutdown before Startup does not run the shutdown hook.",
		},
		{
			ID: "shutdown/a-step-that-ends-does-not-revive", Requirement: "LC-29b", run: shutdownNoRevival,
			Title: "A step that ends while the instance shuts down does not make it READY.",
		},
		{
			ID: "shutdown/goes-on-without-its-caller", Requirement: "LC-19", run: shutdownAlone,
			Title: "A shutdown whose caller went away goes on to TERMINATED.",
		},
		{
			ID: "shutdown/terminated-is-final", Requirement: "LC-3", run: shutdownFinal,
			Title: "No verb, and no number of them at once, changes a TERMINATED instance.",
		},
	}
}

func shutdownDrains(t *trial) {
	in := t.ready(spec{})
	s := in.begin("sleep 400ms").isAdmitted(t)
	stop := in.stopping(5 * time.Second)
	s.succeeds(t, 5*time.Second)
	r, err := stop.wait(t, "Shutdown", soon)
	t.ok("Shutdown", err)
	equal(t, "state in the reply", terminated, r.GetStatus().GetState())
	t.that(len(r.GetErrors()) == 0, "errors of a shutdown in order", "none", r.GetErrors())
	t.that(t.memory.committed(s.req.GetSessionId()) != nil, "a step that ended within the drain", "committed", "not committed")
}

// rounding is by how much timers of some languages fire early: they count whole milliseconds.
const rounding = 2 * time.Millisecond

func shutdownCancels(drain time.Duration) func(*trial) {
	return func(t *trial) {
		in := t.ready(spec{})
		s := in.begin("sleep 30s").isAdmitted(t)
		stop := in.stopping(drain)
		r, err := stop.wait(t, "Shutdown", drain+forced+slack)
		t.ok("Shutdown", err)
		equal(t, "state in the reply", terminated, r.GetStatus().GetState())
		took := stop.ended.Sub(stop.began)
		t.that(took >= drain-rounding, "Shutdown with a running step", "not before its drain of "+drain.String(), took)
		s.fails(t, soon, troupev1.FailureMode_FAILURE_MODE_INSTANCE_DRAINING)
		equal(t, "commits of a step that was cancelled", 0, len(t.memory.called(s.req.GetSessionId())))
	}
}

func shutdownShrinks(t *trial) {
	in := t.ready(spec{})
	in.begin("sleep 30s").isAdmitted(t)
	first := in.stopping(time.Minute)
	in.becomes(shuttingDown, soon)
	const shorter = 200 * time.Millisecond
	_, err := in.stopping(shorter).wait(t, "the second Shutdown, whose drain is 200ms", shorter+forced+slack)
	t.ok("the second Shutdown", err)
	_, err = first.wait(t, "the first Shutdown", slack)
	t.ok("the first Shutdown", err)
	in.isIn("after both", terminated)
}

func shutdownNeverGrows(t *trial) {
	in := t.ready(spec{})
	in.begin("sleep 30s").isAdmitted(t)
	const drain = 400 * time.Millisecond
	first := in.stopping(drain)
	in.becomes(shuttingDown, soon)
	second := in.stopping(time.Minute)
	_, err := first.wait(t, "the first Shutdown, whose drain is 400ms", drain+forced+slack)
	t.ok("the first Shutdown", err)
	_, err = second.wait(t, "the second Shutdown", slack)
	t.ok("the second Shutdown", err)
}

func shutdownSays(t *trial) {
	in := t.ready(spec{})
	in.begin("sleep 30s").isAdmitted(t)
	equal(t, "draining when BUSY", false, in.status().GetDraining())
	in.stopping(time.Minute)
	in.becomes(shuttingDown, soon)
	s := in.status()
	equal(t, "draining while a step may end", true, s.GetDraining())
	equal(t, "in_flight while a step may end", 1, s.GetInFlight())
	_, err := in.stopping(0).wait(t, "Shutdown", forced+slack)
	t.ok("Shutdown", err)
	equal(t, "draining when TERMINATED", false, in.status().GetDraining())
}

func shutdownDrained(t *trial) {
	in := t.ready(spec{shutdown: hangs}) // so that it stays SHUTTING_DOWN
	s := in.begin("sleep 1s").isAdmitted(t)
	in.stopping(3 * time.Second)
	in.becomes(shuttingDown, soon)
	s.succeeds(t, soon)
	in.runs(0, soon)
	equal(t, "draining when no step runs any more", false, in.isIn("while the shutdown hook hangs", shuttingDown).GetDraining())
}

func shutdownHook(hook troupev1.HookBehavior) func(*trial) {
	return func(t *trial) {
		in := t.ready(spec{shutdown: hook})
		const drain = 300 * time.Millisecond
		r, err := in.stopping(drain).wait(t, "Shutdown, whose drain is 300ms", drain+forced+slack)
		t.ok("Shutdown", err)
		equal(t, "state in the reply", terminated, r.GetStatus().GetState())
		t.that(len(r.GetErrors()) > 0, "errors in the reply", "a line for the hook", "none")
		in.isIn("after Shutdown", terminated)
	}
}

func shutdownJoins(t *trial) {
	in := t.ready(spec{shutdown: isSlow})
	var calls []*pending[*troupev1.ShutdownResponse]
	for range callers {
		calls = append(calls, in.stopping(5*time.Second))
	}
	for _, call := range calls {
		r, err := call.wait(t, "Shutdown", 5*time.Second)
		t.ok("Shutdown", err)
		equal(t, "state in the reply", terminated, r.GetStatus().GetState())
	}
	equal(t, "state_version after a start and one shutdown", 4, in.status().GetStateVersion())
}

func shutdownUnused(t *trial) {
	in := t.make(spec{shutdown: fails})
	r, err := in.shutdown(t.ctx, 0, "")
	t.ok("Shutdown", err)
	t.that(len(r.GetErrors()) == 0, "errors, by which the hook would be seen to run", "none", fmt.Sprintf("%q", r.GetErrors()))
	equal(t, "startup_time of an instance that was not started", 0, in.metrics().GetStartupTime().AsDuration())
}

func shutdownNoRevival(t *trial) {
	in := t.ready(spec{shutdown: isSlow})
	s := in.begin("sleep 300ms").isAdmitted(t)
	stop := in.stopping(5 * time.Second)
	s.end(t, 5*time.Second)
	r, err := stop.wait(t, "Shutdown", 5*time.Second)
	t.ok("Shutdown", err)
	equal(t, "state in the reply", terminated, r.GetStatus().GetState())
	t.idle(100 * time.Millisecond)
	in.isIn("in the end", terminated)
	down := false
	for _, tr := range in.history() {
		t.that(!down || tr.GetTo() == terminated, "the state after SHUTTING_DOWN", "TERMINATED", stateName(tr.GetTo()))
		down = tr.GetTo() == shuttingDown
	}
}

func shutdownAlone(t *trial) {
	in := t.ready(spec{})
	in.begin("sleep 30s").isAdmitted(t)
	ctx, cancel := context.WithCancel(t.ctx)
	gone := async(t, func() (*troupev1.ShutdownResponse, error) { return in.shutdown(ctx, 500*time.Millisecond, "") })
	in.becomes(shuttingDown, soon)
	cancel()
	_, err := gone.wait(t, "a Shutdown that its caller cancelled", soon)
	t.failed("a Shutdown that its caller cancelled", err)
	in.becomes(terminated, 500*time.Millisecond+forced+slack)
}

func shutdownFinal(t *trial) {
	in := t.ready(spec{})
	_, err := in.shutdown(t.ctx, 0, "the end")
	t.ok("Shutdown", err)
	before := in.isIn("after Shutdown", terminated)
	var starts, pauses []*pending[*status]
	var steps []*step
	for range 5 {
		starts, pauses, steps = append(starts, in.starting()), append(pauses, in.pausing("")), append(steps, in.begin("say no"))
		_, err = in.resume(t.ctx, "")
		t.refused("Resume", err, failure.AgentState)
		_, err = in.shutdown(t.ctx, 0, "again")
		t.ok("Shutdown", err)
	}
	for i, s := range steps {
		_, err := starts[i].wait(t, "Startup", soon)
		t.refused("Startup", err, failure.AgentState)
		_, err = pauses[i].wait(t, "Pause", soon)
		t.refused("Pause", err, failure.AgentState)
		_, err = s.wait(t, "ExecuteStep", soon)
		t.refused("ExecuteStep", err, failure.InstanceDraining)
	}
	in.unchanged("a verb after TERMINATED", before)
}
