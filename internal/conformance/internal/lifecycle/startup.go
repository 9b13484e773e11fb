package lifecycle

import (
	"context"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// abandonLimit is how long a startup may continue after its timeout. One second is for a hook that ignores its
// context, and one for the release of resources.
const abandonLimit = 2 * time.Second

// hookFailureModes lists the allowed modes of a startup whose hook failed. More than one is allowed, because a
// hook may belong to the agent or to a tool.
var hookFailureModes = []failure.Mode{failure.AgentLogic, failure.ResourceTool}

func startupChecks() []check.Check { return slices.Concat(startupHookChecks(), startupCallerChecks()) }

// startupHookChecks returns the checks of startup hooks that fail, hang, are retried or have concurrent callers.
func startupHookChecks() []check.Check {
	return []check.Check{
		{
			ID: "startup/joins-concurrent-callers", Requirement: "LC-9", Run: checkStartupJoinsCallers,
			Title: "Concurrent calls join one start: all return READY, and it makes two transitions in all.",
		},
		{
			ID: "startup/runs-the-hook-once", Requirement: "LC-9", Run: checkStartupRunsHookOnce,
			Title: "Concurrent calls run the startup hook once: when that fails, all of them fail.",
		},
		{
			ID: "startup/failing-hook-terminates", Requirement: "LC-10", Run: requireStartupFails(check.InstanceSpec{Startup: check.HookFails},
				hookFailureModes...),
			Title: "When the startup hook fails the caller gets the cause, AGENT_LOGIC or RESOURCE_TOOL, and the instance is TERMINATED.",
		},
		{
			ID: "startup/panicking-hook-terminates", Requirement: "LC-10",
			Run:   requireStartupFails(check.InstanceSpec{Startup: check.HookPanics}, hookFailureModes...),
			Title: "A startup hook that panics counts as failed.",
		},
		{
			ID: "startup/hanging-hook-is-abandoned", Requirement: "LC-12", Run: requireStartupFails(check.InstanceSpec{
				Startup:        check.HookHangs,
				StartupTimeout: 300 * time.Millisecond,
			}, failure.AgentTimeout),
			Title: "A startup hook that does not return is abandoned after startup_timeout, with AGENT_TIMEOUT.",
		},
		{
			ID: "startup/slow-hook-is-cancelled", Requirement: "LC-12", Run: requireStartupFails(check.InstanceSpec{
				Startup:        check.HookSlow,
				StartupTimeout: 100 * time.Millisecond,
			}, failure.AgentTimeout),
			Title: "A start that takes longer than startup_timeout fails with AGENT_TIMEOUT.",
		},
		{
			ID: "startup/retries", Requirement: "LC-13", Run: requireStartupSucceeds(check.InstanceSpec{Startup: check.HookFailsOnce, MaxRetries: 1}),
			Title: "A startup hook that fails is tried again, up to max_retries times, inside INITIALIZING.",
		},
		{
			ID: "startup/retries-up-to-max-retries", Requirement: "LC-13",
			Run:   requireStartupSucceeds(check.InstanceSpec{Startup: check.HookFailsTwice, MaxRetries: 2}),
			Title: "With max_retries 2 a startup hook that fails twice ends in READY.",
		},
		{
			ID: "startup/retries-no-more-than-max-retries", Requirement: "LC-13", Run: requireStartupFails(check.InstanceSpec{
				Startup:    check.HookFailsTwice,
				MaxRetries: 1,
			}, hookFailureModes...),
			Title: "With max_retries 1, a startup whose hook fails twice has failed: there is no third try.",
		},
		{
			ID: "startup/releases-after-a-failed-try", Requirement: "LC-13", Run: requireStartupFails(check.InstanceSpec{
				Startup:  check.HookFailsOnce,
				Shutdown: check.HookFails, MaxRetries: 1,
			}, hookFailureModes...),
			Title: "After a try that failed the shutdown hook runs; when that fails too there is no other try.",
		},
		{
			ID: "startup/no-retries-with-max-retries-0", Requirement: "LC-13",
			Run:   requireStartupFails(check.InstanceSpec{Startup: check.HookFailsOnce}, hookFailureModes...),
			Title: "With max_retries 0 a startup hook is tried once.",
		},
		{
			ID: "startup/fails-after-max-retries", Requirement: "LC-13",
			Run:   requireStartupFails(check.InstanceSpec{Startup: check.HookFails, MaxRetries: 2}, hookFailureModes...),
			Title: "After max_retries more tries the start has failed, and the instance is TERMINATED.",
		},
		{
			ID: "startup/retries-share-the-timeout", Requirement: "LC-12", Run: requireStartupFails(check.InstanceSpec{
				Startup:    check.HookHangs,
				MaxRetries: 10, StartupTimeout: 300 * time.Millisecond,
			}, failure.AgentTimeout),
			Title: "startup_timeout bounds all tries together.",
		},
	}
}

// startupCallerChecks returns the checks of how callers, deadlines and shutdowns affect a startup.
func startupCallerChecks() []check.Check {
	return []check.Check{
		{
			ID: "startup/keep-failed-stays-initializing", Requirement: "LC-11", Run: checkStartupKeepsFailedInstance,
			Title: "With keep_failed a failed start leaves the instance in INITIALIZING until a Shutdown.",
		},
		{
			ID: "startup/callers-deadline-bounds-it", Requirement: "LC-12", Run: checkStartupCallersDeadline,
			Title: "The deadline of the caller bounds the start, when it is shorter than startup_timeout.",
		},
		{
			ID: "startup/joiners-deadline-ends-only-its-call", Requirement: "LC-9", Run: checkStartupJoiningCallersDeadline,
			Title: "A caller that joins and reaches its deadline does not end the startup of the first caller.",
		},
		{
			ID: "startup/continues-without-its-caller", Requirement: "LC-12", Run: checkStartupContinuesWithoutCaller,
			Title: "A caller that disconnects does not end the startup; only the deadline that it set does.",
		},
		{
			ID: "startup/shutdown-cancels-it", Requirement: "LC-2", Run: checkStartupCancelledByShutdown(check.HookSlow),
			Title: "Shutdown during a start makes the Startup fail, and the instance is never READY.",
		},
		{
			ID: "startup/shutdown-abandons-a-hanging-startup", Requirement: "LC-19", Run: checkStartupCancelledByShutdown(check.HookHangs),
			Title: "Shutdown during a start whose hook hangs ends the instance within its deadline and a second.",
		},
		{
			ID: "startup/instances-are-independent", Requirement: "LC-33", Run: checkStartupsAreIndependent,
			Title: "Instances that hang or fail in their startup do not prevent another from starting and working.",
		},
	}
}

func checkStartupJoinsCallers(t *check.T) {
	in := t.MakeInstance(check.InstanceSpec{Startup: check.HookSlow})
	var calls []*check.Call[*check.Status]
	for range check.ConcurrentCallers {
		calls = append(calls, in.StartupAsync())
	}
	for _, call := range calls {
		s, err := call.Wait(t, "Startup", 5*time.Second)
		t.NoError("Startup", err)
		check.Equal(t, "state in the reply", check.Ready, s.GetState())
	}
	check.Equal(t, "state_version after one start", 2, in.Status().GetStateVersion())
}

func checkStartupRunsHookOnce(t *check.T) {
	in := t.MakeInstance(check.InstanceSpec{Startup: check.HookFailsOnce})
	var calls []*check.Call[*check.Status]
	for range check.ConcurrentCallers {
		calls = append(calls, in.StartupAsync())
	}
	succeeded := 0
	for _, call := range calls {
		if _, err := call.Wait(t, "Startup", 5*time.Second); err == nil {
			succeeded++
		}
	}
	check.Equal(t, "calls that returned OK though the only run of the hook failed", 0, succeeded)
	in.AwaitState(check.Terminated, check.AnswerLimit)
}

// requireStartupFails returns a check that a startup fails with one of the modes and that the instance then
// terminates.
func requireStartupFails(s check.InstanceSpec, modes ...failure.Mode) func(*check.T) {
	return func(t *check.T) {
		in := t.MakeInstance(s)
		call := in.StartupAsync()
		_, err := call.Wait(t, "Startup", s.StartupTimeout+abandonLimit+check.TimingSlack)
		t.ErrorHasMode("Startup", err, modes...)
		in.AwaitState(check.Terminated, time.Second)
		for _, tr := range in.Transitions() {
			t.True(tr.GetTo() != check.Ready, "states of a start that fails", "never READY", "READY")
		}
		check.Equal(t, "transitions of a start that fails: INITIALIZING, SHUTTING_DOWN, TERMINATED", 3, in.Status().GetStateVersion())
	}
}

// requireStartupSucceeds returns a check that a startup succeeds, possibly after retries.
func requireStartupSucceeds(s check.InstanceSpec) func(*check.T) {
	return func(t *check.T) {
		in := t.MakeInstance(s)
		s, err := in.StartupAsync().Wait(t, "Startup", 5*time.Second)
		t.NoError("Startup", err)
		check.Equal(t, "state in the reply", check.Ready, s.GetState())
		check.Equal(t, "state_version after a start with a retry", 2, s.GetStateVersion())
		check.Equal(t, "answer of a step", "hello", in.RunStep("say hello"))
	}
}

func checkStartupKeepsFailedInstance(t *check.T) {
	in := t.MakeInstance(check.InstanceSpec{Startup: check.HookFails, KeepFailed: true})
	_, err := in.StartupAsync().Wait(t, "Startup", check.AnswerLimit)
	t.ErrorHasMode("Startup", err, hookFailureModes...)
	t.Sleep(200 * time.Millisecond)
	s := in.RequireState("after a failed start with keep_failed", check.Initializing)
	check.Equal(t, "state_version", 1, s.GetStateVersion())
	_, err = in.StartupAsync().Wait(t, "a second Startup", check.AnswerLimit)
	t.Error("a second Startup", err)
	in.RequireState("after a second Startup", check.Initializing)
	_, err = in.ShutdownAsync(0).Wait(t, "Shutdown", time.Second+check.TimingSlack)
	t.NoError("Shutdown", err)
	in.RequireState("after Shutdown", check.Terminated)
}

func checkStartupCallersDeadline(t *check.T) {
	in := t.MakeInstance(check.InstanceSpec{Startup: check.HookHangs, StartupTimeout: time.Minute})
	const deadline = 300 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Ctx, deadline)
	defer cancel()
	_, err := in.Startup(ctx)
	t.Error("Startup with a deadline of 300ms", err)
	in.AwaitState(check.Terminated, abandonLimit)
}

func checkStartupJoiningCallersDeadline(t *check.T) {
	in := t.MakeInstance(check.InstanceSpec{Startup: check.HookSlow})
	first := in.StartupAsync()
	in.AwaitStartup()
	ctx, cancel := context.WithTimeout(t.Ctx, 50*time.Millisecond)
	defer cancel()
	_, _ = in.Startup(ctx) // the result depends on the speed of the machine
	_, err := first.Wait(t, "Startup", 5*time.Second)
	t.NoError("Startup of the first caller", err)
	in.RequireState("after the start", check.Ready)
}

func checkStartupContinuesWithoutCaller(t *check.T) {
	alone := func(s check.InstanceSpec) *check.Instance {
		in := t.MakeInstance(s)
		ctx, leave := context.WithCancel(t.Ctx)
		first := check.Go(t, func() (*check.Status, error) { return in.Startup(ctx) })
		in.AwaitStartup()
		leave()
		_, _ = first.Wait(t, "a Startup that its caller cancelled", check.AnswerLimit) // the startup may have ended first
		return in
	}
	hanging := alone(check.InstanceSpec{Startup: check.HookHangs, StartupTimeout: time.Minute})
	slow := alone(check.InstanceSpec{Startup: check.HookSlow})
	slow.AwaitState(check.Ready, check.AnswerLimit)
	check.Equal(t, "state_version after one start", 2, slow.Status().GetStateVersion())
	t.Sleep(abandonLimit)
	hanging.RequireState("when its caller has gone away", check.Initializing)
}

// checkStartupCancelledByShutdown returns a check that calls Shutdown while the startup hook runs. The check
// retries a few times, because on a busy machine the hook may end before Shutdown arrives.
func checkStartupCancelledByShutdown(hook troupev1.HookBehavior) func(*check.T) {
	return func(t *check.T) {
		var err error
		for range 3 {
			in := t.MakeInstance(check.InstanceSpec{Startup: hook, StartupTimeout: time.Minute})
			starting := in.StartupAsync()
			in.AwaitStartup()
			r, stopErr := in.ShutdownAsync(0).Wait(t, "Shutdown", time.Second+check.TimingSlack)
			t.NoError("Shutdown", stopErr)
			check.Equal(t, "state in the reply", check.Terminated, r.GetStatus().GetState())
			if _, err = starting.Wait(t, "Startup", check.AnswerLimit); err != nil {
				check.Equal(t, "transitions: INITIALIZING, SHUTTING_DOWN, TERMINATED", 3, in.RequireState("in the end", check.Terminated).GetStateVersion())
				return
			}
		}
		t.Error("Startup that a Shutdown overtakes", err)
	}
}

func checkStartupsAreIndependent(t *check.T) {
	hanging := t.MakeInstance(check.InstanceSpec{Startup: check.HookHangs, StartupTimeout: time.Minute})
	hanging.StartupAsync()
	hanging.AwaitState(check.Initializing, check.AnswerLimit)
	failing := t.MakeInstance(check.InstanceSpec{Startup: check.HookFails})
	_, err := failing.StartupAsync().Wait(t, "Startup of one that fails", check.AnswerLimit)
	t.Error("Startup of one that fails", err)

	in := t.StartInstance(check.InstanceSpec{})
	check.Equal(t, "answer of a step", "hello", in.RunStep("say hello"))
	hanging.RequireState("of the one that hangs", check.Initializing)
	_, err = in.Shutdown(t.Ctx, 0, "")
	t.NoError("Shutdown", err)
	hanging.RequireState("of the one that hangs, after another ended", check.Initializing)
}
