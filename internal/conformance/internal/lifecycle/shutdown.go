package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// forcedEndLimit is how long a shutdown may continue after its deadline.
const forcedEndLimit = time.Second

func shutdownChecks() []check.Check {
	return []check.Check{
		{
			ID: "shutdown/drains", Requirement: "LC-29c", Run: checkShutdownDrains,
			Title: "Steps that end within the drain time are answered and committed as usual.",
		},
		{
			ID: "shutdown/cancels-at-the-deadline", Requirement: "LC-29c", Run: checkShutdownCancelsSteps(500 * time.Millisecond),
			Title: "Steps that do not end within the drain time are cancelled: INSTANCE_DRAINING, nothing committed, TERMINATED a second later at most.",
		},
		{
			ID: "shutdown/zero-drain-cancels-at-once", Requirement: "ShutdownRequest.drain", Run: checkShutdownCancelsSteps(0),
			Title: "With a drain of zero running steps are cancelled at once.",
		},
		{
			ID: "shutdown/deadline-shrinks", Requirement: "LifecycleService.Shutdown", Run: checkShutdownDeadlineShrinks,
			Title: "A later Shutdown with a shorter drain shortens the one that runs.",
		},
		{
			ID: "shutdown/deadline-never-grows", Requirement: "LifecycleService.Shutdown", Run: checkShutdownDeadlineNeverGrows,
			Title: "A later Shutdown with a longer drain does not lengthen the one that runs.",
		},
		{
			ID: "shutdown/reports-draining", Requirement: "InstanceStatus.draining", Run: checkShutdownReportsDraining,
			Title: "draining is set while steps may still end, and not before.",
		},
		{
			ID: "shutdown/drain-ends-with-the-last-step", Requirement: "InstanceStatus.draining", Run: checkShutdownDrainEndsWithLastStep,
			Title: "draining is no longer set when the last step has ended, although the shutdown continues.",
		},
		{
			ID: "shutdown/failing-hook-is-reported", Requirement: "LC-17", Run: checkShutdownHookFailure(check.HookFails),
			Title: "When the shutdown hook fails the reply is OK and names it in errors, and the instance is TERMINATED.",
		},
		{
			ID: "shutdown/panicking-hook-is-reported", Requirement: "LC-17", Run: checkShutdownHookFailure(check.HookPanics),
			Title: "When the shutdown hook panics the reply is OK and names it in errors, and the instance is TERMINATED.",
		},
		{
			ID: "shutdown/hanging-hook-is-abandoned", Requirement: "LC-19", Run: checkShutdownHookFailure(check.HookHangs),
			Title: "A shutdown hook that does not return is abandoned: TERMINATED within the deadline and a second.",
		},
		{
			ID: "shutdown/joins-concurrent-callers", Requirement: "LC-20", Run: checkShutdownJoinsCallers,
			Title: "Concurrent calls join one shutdown: all return TERMINATED, and it makes two transitions in all.",
		},
		{
			ID: "shutdown/unused-instance-releases-nothing", Requirement: "LC-22", Run: checkShutdownBeforeStartup,
			Title: "Shutdown before Startup does not run the shutdown hook.",
		},
		{
			ID: "shutdown/ended-step-does-not-make-ready", Requirement: "LC-29b", Run: checkEndedStepDoesNotMakeReady,
			Title: "A step that ends while the instance shuts down does not make it READY.",
		},
		{
			ID: "shutdown/continues-without-its-caller", Requirement: "LC-19", Run: checkShutdownContinuesWithoutCaller,
			Title: "A shutdown continues to TERMINATED if its caller disconnects.",
		},
		{
			ID: "shutdown/terminated-is-final", Requirement: "LC-3", Run: checkTerminatedIsFinal,
			Title: "No verb changes a TERMINATED instance, not even many concurrent verbs.",
		},
	}
}

func checkShutdownDrains(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	s := in.StartStep("sleep 400ms").AwaitAdmission(t)
	stop := in.ShutdownAsync(5 * time.Second)
	s.RequireSuccess(t, 5*time.Second)
	r, err := stop.Wait(t, "Shutdown", check.AnswerLimit)
	t.NoError("Shutdown", err)
	check.Equal(t, "state in the reply", check.Terminated, r.GetStatus().GetState())
	t.True(len(r.GetErrors()) == 0, "errors of a shutdown in order", "none", r.GetErrors())
	t.True(t.Memory.StoredCommit(s.Req.GetSessionId()) != nil, "a step that ended within the drain", "committed", "not committed")
}

// maxRounding is how early a timer may fire, because the timers of some languages count whole milliseconds.
const maxRounding = 2 * time.Millisecond

func checkShutdownCancelsSteps(drain time.Duration) func(*check.T) {
	return func(t *check.T) {
		in := t.StartInstance(check.InstanceSpec{})
		s := in.StartStep("sleep 30s").AwaitAdmission(t)
		stop := in.ShutdownAsync(drain)
		r, err := stop.Wait(t, "Shutdown", drain+forcedEndLimit+check.TimingSlack)
		t.NoError("Shutdown", err)
		check.Equal(t, "state in the reply", check.Terminated, r.GetStatus().GetState())
		took := stop.Ended.Sub(stop.Began)
		t.True(took >= drain-maxRounding, "Shutdown with a running step", "not before its drain of "+drain.String(), took)
		s.RequireFailure(t, check.AnswerLimit, troupev1.FailureMode_FAILURE_MODE_INSTANCE_DRAINING)
		check.Equal(t, "commits of a step that was cancelled", 0, len(t.Memory.CommitCalls(s.Req.GetSessionId())))
	}
}

func checkShutdownDeadlineShrinks(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	in.StartStep("sleep 30s").AwaitAdmission(t)
	first := in.ShutdownAsync(time.Minute)
	in.AwaitState(check.ShuttingDown, check.AnswerLimit)
	const shorter = 200 * time.Millisecond
	_, err := in.ShutdownAsync(shorter).Wait(t, "the second Shutdown, whose drain is 200ms", shorter+forcedEndLimit+check.TimingSlack)
	t.NoError("the second Shutdown", err)
	_, err = first.Wait(t, "the first Shutdown", check.TimingSlack)
	t.NoError("the first Shutdown", err)
	in.RequireState("after both", check.Terminated)
}

func checkShutdownDeadlineNeverGrows(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	in.StartStep("sleep 30s").AwaitAdmission(t)
	const drain = 400 * time.Millisecond
	first := in.ShutdownAsync(drain)
	in.AwaitState(check.ShuttingDown, check.AnswerLimit)
	second := in.ShutdownAsync(time.Minute)
	_, err := first.Wait(t, "the first Shutdown, whose drain is 400ms", drain+forcedEndLimit+check.TimingSlack)
	t.NoError("the first Shutdown", err)
	_, err = second.Wait(t, "the second Shutdown", check.TimingSlack)
	t.NoError("the second Shutdown", err)
}

func checkShutdownReportsDraining(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	in.StartStep("sleep 30s").AwaitAdmission(t)
	check.Equal(t, "draining when BUSY", false, in.Status().GetDraining())
	in.ShutdownAsync(time.Minute)
	in.AwaitState(check.ShuttingDown, check.AnswerLimit)
	s := in.Status()
	check.Equal(t, "draining while a step may end", true, s.GetDraining())
	check.Equal(t, "in_flight while a step may end", 1, s.GetInFlight())
	_, err := in.ShutdownAsync(0).Wait(t, "Shutdown", forcedEndLimit+check.TimingSlack)
	t.NoError("Shutdown", err)
	check.Equal(t, "draining when TERMINATED", false, in.Status().GetDraining())
}

func checkShutdownDrainEndsWithLastStep(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{Shutdown: check.HookHangs}) // keeps the instance in SHUTTING_DOWN
	s := in.StartStep("sleep 1s").AwaitAdmission(t)
	in.ShutdownAsync(3 * time.Second)
	in.AwaitState(check.ShuttingDown, check.AnswerLimit)
	s.RequireSuccess(t, check.AnswerLimit)
	in.AwaitSteps(0, check.AnswerLimit)
	check.Equal(t, "draining when no step runs any more", false, in.RequireState("while the shutdown hook hangs", check.ShuttingDown).GetDraining())
}

func checkShutdownHookFailure(hook troupev1.HookBehavior) func(*check.T) {
	return func(t *check.T) {
		in := t.StartInstance(check.InstanceSpec{Shutdown: hook})
		const drain = 300 * time.Millisecond
		r, err := in.ShutdownAsync(drain).Wait(t, "Shutdown, whose drain is 300ms", drain+forcedEndLimit+check.TimingSlack)
		t.NoError("Shutdown", err)
		check.Equal(t, "state in the reply", check.Terminated, r.GetStatus().GetState())
		t.True(len(r.GetErrors()) > 0, "errors in the reply", "a line for the hook", "none")
		in.RequireState("after Shutdown", check.Terminated)
	}
}

func checkShutdownJoinsCallers(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{Shutdown: check.HookSlow})
	var calls []*check.Call[*troupev1.ShutdownResponse]
	for range check.ConcurrentCallers {
		calls = append(calls, in.ShutdownAsync(5*time.Second))
	}
	for _, call := range calls {
		r, err := call.Wait(t, "Shutdown", 5*time.Second)
		t.NoError("Shutdown", err)
		check.Equal(t, "state in the reply", check.Terminated, r.GetStatus().GetState())
	}
	check.Equal(t, "state_version after a start and one shutdown", 4, in.Status().GetStateVersion())
}

func checkShutdownBeforeStartup(t *check.T) {
	in := t.MakeInstance(check.InstanceSpec{Shutdown: check.HookFails})
	r, err := in.Shutdown(t.Ctx, 0, "")
	t.NoError("Shutdown", err)
	t.True(len(r.GetErrors()) == 0, "errors, which would show that the hook ran", "none", fmt.Sprintf("%q", r.GetErrors()))
	check.Equal(t, "startup_time of an instance that was not started", 0, in.Metrics().GetStartupTime().AsDuration())
}

func checkEndedStepDoesNotMakeReady(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{Shutdown: check.HookSlow})
	s := in.StartStep("sleep 300ms").AwaitAdmission(t)
	stop := in.ShutdownAsync(5 * time.Second)
	s.AwaitResult(t, 5*time.Second)
	r, err := stop.Wait(t, "Shutdown", 5*time.Second)
	t.NoError("Shutdown", err)
	check.Equal(t, "state in the reply", check.Terminated, r.GetStatus().GetState())
	t.Sleep(100 * time.Millisecond)
	in.RequireState("in the end", check.Terminated)
	down := false
	for _, tr := range in.Transitions() {
		t.True(!down || tr.GetTo() == check.Terminated, "the state after SHUTTING_DOWN", "TERMINATED", check.StateName(tr.GetTo()))
		down = tr.GetTo() == check.ShuttingDown
	}
}

func checkShutdownContinuesWithoutCaller(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	in.StartStep("sleep 30s").AwaitAdmission(t)
	ctx, cancel := context.WithCancel(t.Ctx)
	gone := check.Go(t, func() (*troupev1.ShutdownResponse, error) { return in.Shutdown(ctx, 500*time.Millisecond, "") })
	in.AwaitState(check.ShuttingDown, check.AnswerLimit)
	cancel()
	_, err := gone.Wait(t, "a Shutdown that its caller cancelled", check.AnswerLimit)
	t.Error("a Shutdown that its caller cancelled", err)
	in.AwaitState(check.Terminated, 500*time.Millisecond+forcedEndLimit+check.TimingSlack)
}

func checkTerminatedIsFinal(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	_, err := in.Shutdown(t.Ctx, 0, "the end")
	t.NoError("Shutdown", err)
	before := in.RequireState("after Shutdown", check.Terminated)
	var starts, pauses []*check.Call[*check.Status]
	var steps []*check.Step
	for range 5 {
		starts, pauses, steps = append(starts, in.StartupAsync()), append(pauses, in.PauseAsync("")), append(steps, in.StartStep("say no"))
		_, err = in.Resume(t.Ctx, "")
		t.ErrorHasMode("Resume", err, failure.AgentState)
		_, err = in.Shutdown(t.Ctx, 0, "again")
		t.NoError("Shutdown", err)
	}
	for i, s := range steps {
		_, err := starts[i].Wait(t, "Startup", check.AnswerLimit)
		t.ErrorHasMode("Startup", err, failure.AgentState)
		_, err = pauses[i].Wait(t, "Pause", check.AnswerLimit)
		t.ErrorHasMode("Pause", err, failure.AgentState)
		_, err = s.Wait(t, "ExecuteStep", check.AnswerLimit)
		t.ErrorHasMode("ExecuteStep", err, failure.InstanceDraining)
	}
	in.RequireUnchanged("a verb after TERMINATED", before)
}
