package conformance

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// callers is how many call at the same time where it may make a difference.
const callers = 16

// giveUp is what a start may take beyond its time limit: one second for a hook that does
// not heed its end, one for what is released.
const giveUp = 2 * time.Second

// hookFailed are the modes of a startup whose hook failed: the hook is the agent's own code,
// or that of a tool.
var hookFailed = []failure.Mode{failure.AgentLogic, failure.ResourceTool}

func startupChecks() []Check {
	return []Check{
		{
			ID: "startup/joins-concurrent-callers", Requirement: "LC-9", run: startupJoins,
			Title: "Concurrent calls join one start: all return READY, and it makes two transitions in all.",
		},
		{
			ID: "startup/runs-the-hook-once", Requirement: "LC-9", run: startupRunsOnce,
			Title: "Concurrent calls run the startup hook once: when that fails, all of them fail.",
		},
		{
			ID: "startup/failing-hook-terminates", Requirement: "LC-10", run: startupFails(spec{startup: fails}, hookFailed...),
			Title: "When the startup hook fails the caller gets the cause, AGENT_LOGIC or RESOURCE_TOOL, and the instance is TERMINATED.",
		},
		{
			ID: "startup/panicking-hook-terminates", Requirement: "LC-10", run: startupFails(spec{startup: panics}, hookFailed...),
			Title: "A startup hook that throws has failed.",
		},
		{
			ID: "startup/hanging-hook-is-given-up", Requirement: "LC-12", run: startupFails(spec{startup: hangs, startupTimeout: 300 * time.Millisecond}, failure.AgentTimeout),
			Title: "A startup hook that does not return is given up after startup_timeout, with AGENT_TIMEOUT.",
		},
		{
			ID: "startup/slow-hook-is-cancelled", Requirement: "LC-12", run: startupFails(spec{startup: isSlow, startupTimeout: 100 * time.Millisecond}, failure.AgentTimeout),
			Title: "A start that takes longer than startup_timeout fails with AGENT_TIMEOUT.",
		},
		{
			ID: "startup/retries", Requirement: "LC-13", run: startupSucceeds(spec{startup: failsOnce, maxRetries: 1}),
			Title: "A startup hook that fails is tried again, up to max_retries times, inside INITIALIZING.",
		},
		{
			ID: "startup/retries-as-often-as-told", Requirement: "LC-13", run: startupSucceeds(spec{startup: failsTwice, maxRetries: 2}),
			Title: "With max_retries 2 a startup hook that fails twice ends in READY.",
		},
		{
			ID: "startup/retries-no-more-than-told", Requirement: "LC-13", run: startupFails(spec{startup: failsTwice, maxRetries: 1}, hookFailed...),
			Title: "With max_retries 1 a startup hook that fails twice has failed: there is no third try.",
		},
		{
			ID: "startup/frees-what-a-try-took", Requirement: "LC-13", run: startupFails(spec{startup: failsOnce, shutdown: fails, maxRetries: 1}, hookFailed...),
			Title: "After a try that failed the shutdown hook runs; when that fails too there is no other try.",
		},
		{
			ID: "startup/does-not-retry-unasked", Requirement: "LC-13", run: startupFails(spec{startup: failsOnce}, hookFailed...),
			Title: "With max_retries 0 a startup hook is tried once.",
		},
		{
			ID: "startup/stops-retrying", Requirement: "LC-13", run: startupFails(spec{startup: fails, maxRetries: 2}, hookFailed...),
			Title: "After max_retries more tries the start has failed, and the instance is TERMINATED.",
		},
		{
			ID: "startup/retries-share-the-timeout", Requirement: "LC-12", run: startupFails(spec{startup: hangs, maxRetries: 10, startupTimeout: 300 * time.Millisecond}, failure.AgentTimeout),
			Title: "startup_timeout bounds all tries together.",
		},
		{
			ID: "startup/keeps-failed", Requirement: "LC-11", run: startupKeepsFailed,
			Title: "With keep_failed a failed start leaves the instance in INITIALIZING until a Shutdown.",
		},
		{
			ID: "startup/callers-deadline-bounds-it", Requirement: "LC-12", run: startupCallersDeadline,
			Title: "The deadline of the caller bounds the start, when it is shorter than startup_timeout.",
		},
		{
			ID: "startup/a-joiners-deadline-is-its-own", Requirement: "LC-9", run: startupJoinersDeadline,
			Title: "A caller that joins and runs out of time does not end the start of the first.",
		},
		{
			ID: "startup/goes-on-without-its-caller", Requirement: "LC-12", run: startupAlone,
			Title: "A caller that goes away does not end the start; only the deadline that it gave does.",
		},
		{
			ID: "startup/shutdown-cancels-it", Requirement: "LC-2", run: startupCancelled(isSlow),
			Title: "Shutdown during a start makes the Startup fail, and the instance is never READY.",
		},
		{
			ID: "startup/shutdown-gives-a-hanging-one-up", Requirement: "LC-19", run: startupCancelled(hangs),
			Title: "Shutdown during a start whose hook hangs ends the instance within its deadline and a second.",
		},
		{
			ID: "startup/instances-are-independent", Requirement: "LC-33", run: startupIndependent,
			Title: "Instances that hang or fail in their startup do not keep another from starting and working.",
		},
	}
}

func startupJoins(t *trial) {
	in := t.make(spec{startup: isSlow})
	var calls []*pending[*status]
	for range callers {
		calls = append(calls, in.starting())
	}
	for _, call := range calls {
		s, err := call.wait(t, "Startup", 5*time.Second)
		t.ok("Startup", err)
		equal(t, "state in the reply", ready, s.GetState())
	}
	equal(t, "state_version after one start", 2, in.status().GetStateVersion())
}

func startupRunsOnce(t *trial) {
	in := t.make(spec{startup: failsOnce})
	var calls []*pending[*status]
	for range callers {
		calls = append(calls, in.starting())
	}
	succeeded := 0
	for _, call := range calls {
		if _, err := call.wait(t, "Startup", 5*time.Second); err == nil {
			succeeded++
		}
	}
	equal(t, "calls that returned OK though the only run of the hook failed", 0, succeeded)
	in.becomes(terminated, soon)
}

// startupFails checks a start that fails with one of the modes, and that the instance ends.
func startupFails(s spec, modes ...failure.Mode) func(*trial) {
	return func(t *trial) {
		in := t.make(s)
		call := in.starting()
		_, err := call.wait(t, "Startup", s.startupTimeout+giveUp+slack)
		t.refused("Startup", err, modes...)
		in.becomes(terminated, time.Second)
		for _, tr := range in.history() {
			t.that(tr.GetTo() != ready, "states of a start that fails", "never READY", "READY")
		}
		equal(t, "transitions of a start that fails: INITIALIZING, SHUTTING_DOWN, TERMINATED", 3, in.status().GetStateVersion())
	}
}

// startupSucceeds checks a start that succeeds, be it after some tries.
func startupSucceeds(s spec) func(*trial) {
	return func(t *trial) {
		in := t.make(s)
		s, err := in.starting().wait(t, "Startup", 5*time.Second)
		t.ok("Startup", err)
		equal(t, "state in the reply", ready, s.GetState())
		equal(t, "state_version after a start with a retry", 2, s.GetStateVersion())
		equal(t, "answer of a step", "hello", in.says("say hello"))
	}
}

func startupKeepsFailed(t *trial) {
	in := t.make(spec{startup: fails, keepFailed: true})
	_, err := in.starting().wait(t, "Startup", soon)
	t.refused("Startup", err, hookFailed...)
	t.idle(200 * time.Millisecond)
	s := in.isIn("after a failed start with keep_failed", initializing)
	equal(t, "state_version", 1, s.GetStateVersion())
	_, err = in.starting().wait(t, "a second Startup", soon)
	t.failed("a second Startup", err)
	in.isIn("after a second Startup", initializing)
	_, err = in.stopping(0).wait(t, "Shutdown", time.Second+slack)
	t.ok("Shutdown", err)
	in.isIn("after Shutdown", terminated)
}

func startupCallersDeadline(t *trial) {
	in := t.make(spec{startup: hangs, startupTimeout: time.Minute})
	const deadline = 300 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.ctx, deadline)
	defer cancel()
	_, err := in.startup(ctx)
	t.failed("Startup with a deadline of 300ms", err)
	in.becomes(terminated, giveUp)
}

func startupJoinersDeadline(t *trial) {
	in := t.make(spec{startup: isSlow})
	first := in.starting()
	in.begins()
	ctx, cancel := context.WithTimeout(t.ctx, 50*time.Millisecond)
	defer cancel()
	_, _ = in.startup(ctx) // what it returns depends on how quick the machine is
	_, err := first.wait(t, "Startup", 5*time.Second)
	t.ok("Startup of the first caller", err)
	in.isIn("after the start", ready)
}

func startupAlone(t *trial) {
	alone := func(s spec) *instance {
		in := t.make(s)
		ctx, leave := context.WithCancel(t.ctx)
		first := async(t, func() (*status, error) { return in.startup(ctx) })
		in.begins()
		leave()
		_, _ = first.wait(t, "a Startup that its caller cancelled", soon) // which may have been quicker
		return in
	}
	hanging := alone(spec{startup: hangs, startupTimeout: time.Minute})
	slow := alone(spec{startup: isSlow})
	slow.becomes(ready, soon)
	equal(t, "state_version after one start", 2, slow.status().GetStateVersion())
	t.idle(giveUp)
	hanging.isIn("when its caller has gone away", initializing)
}

// startupCancelled checks a Shutdown while the startup hook runs. On a busy machine a slow
// hook may end before the Shutdown comes, so there are a few tries.
func startupCancelled(hook troupev1.HookBehavior) func(*trial) {
	return func(t *trial) {
		var err error
		for range 3 {
			in := t.make(spec{startup: hook, startupTimeout: time.Minute})
			starting := in.starting()
			in.begins()
			r, stopErr := in.stopping(0).wait(t, "Shutdown", time.Second+slack)
			t.ok("Shutdown", stopErr)
			equal(t, "state in the reply", terminated, r.GetStatus().GetState())
			if _, err = starting.wait(t, "Startup", soon); err != nil {
				equal(t, "transitions: INITIALIZING, SHUTTING_DOWN, TERMINATED", 3, in.isIn("in the end", terminated).GetStateVersion())
				return
			}
		}
		t.failed("Startup that a Shutdown overtakes", err)
	}
}

func startupIndependent(t *trial) {
	hanging := t.make(spec{startup: hangs, startupTimeout: time.Minute})
	hanging.starting()
	hanging.becomes(initializing, soon)
	failing := t.make(spec{startup: fails})
	_, err := failing.starting().wait(t, "Startup of one that fails", soon)
	t.failed("Startup of one that fails", err)

	in := t.ready(spec{})
	equal(t, "answer of a step", "hello", in.says("say hello"))
	hanging.isIn("of the one that hangs", initializing)
	_, err = in.shutdown(t.ctx, 0, "")
	t.ok("Shutdown", err)
	hanging.isIn("of the one that hangs, after another ended", initializing)
}
