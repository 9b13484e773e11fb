// Package lifecycle contains the checks of Startup, Pause, Resume and Shutdown in each state of an instance, and
// of the admission of steps.
package lifecycle

import (
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// verbCase is one cell of the table of states and verbs (docs/lifecycle.md).
type verbCase struct {
	verb        string
	state       troupev1.InstanceState
	rejectMode  failure.Mode // mode with which the verb is rejected (empty means OK)
	nextState   troupev1.InstanceState
	transitions uint64 // number of transitions that the verb causes (0 means no change)
	requirement string
	title       string
}

func verbCases() []verbCase {
	const ok = failure.Unknown
	return []verbCase{
		{"startup", check.Uninitialized, ok, check.Ready, 2, "LC-2", "Startup takes a new instance to READY."},
		{"startup", check.Initializing, ok, check.Ready, 1, "LC-9", "Startup joins the one that runs, and returns when that has ended."},
		{"startup", check.Ready, ok, check.Ready, 0, "LC-8", "Startup of a READY instance is OK and changes nothing."},
		{"startup", check.Busy, ok, check.Busy, 0, "LC-8", "Startup of a BUSY instance is OK and changes nothing."},
		{"startup", check.Paused, ok, check.Paused, 0, "LC-8", "Startup of a PAUSED instance is OK and changes nothing."},
		{"startup", check.ShuttingDown, failure.AgentState, check.ShuttingDown, 0, "LC-2", "Startup after Shutdown is rejected with AGENT_STATE."},
		{"startup", check.Terminated, failure.AgentState, check.Terminated, 0, "LC-3", "Startup of a TERMINATED instance is rejected with AGENT_STATE."},

		{"step", check.Uninitialized, failure.AgentState, check.Uninitialized, 0, "LC-26", "A step before Startup is rejected with AGENT_STATE."},
		{"step", check.Initializing, failure.AgentState, check.Initializing, 0, "LC-26", "A step during the startup is rejected with AGENT_STATE."},
		{"step", check.Ready, ok, check.Ready, 2, "LC-27", "A step makes a READY instance BUSY, and READY again when it ends."},
		{"step", check.Busy, ok, check.Busy, 0, "LC-27", "A BUSY instance takes steps up to its capacity, and stays BUSY."},
		{"step", check.Paused, failure.InstancePaused, check.Paused, 0, "LC-26", "A PAUSED instance rejects steps with INSTANCE_PAUSED."},
		{
			"step", check.ShuttingDown, failure.InstanceDraining, check.ShuttingDown, 0, "LC-29c",
			"An instance that shuts down rejects steps with INSTANCE_DRAINING.",
		},
		{"step", check.Terminated, failure.InstanceDraining, check.Terminated, 0, "LC-3", "A TERMINATED instance rejects steps with INSTANCE_DRAINING."},

		{"pause", check.Uninitialized, ok, check.Uninitialized, 0, "LC-4", "Pause before Startup is OK and changes nothing."},
		{"pause", check.Initializing, ok, check.Initializing, 0, "LC-4", "Pause during the startup is OK and changes nothing."},
		{"pause", check.Ready, ok, check.Paused, 1, "LC-2", "Pause takes a READY instance to PAUSED."},
		{"pause", check.Busy, ok, check.Paused, 1, "LC-4", "Pause of a BUSY instance waits until no step runs, and then it is PAUSED."},
		{"pause", check.Paused, ok, check.Paused, 0, "LC-4", "Pause of a PAUSED instance is OK and changes nothing."},
		{"pause", check.ShuttingDown, failure.AgentState, check.ShuttingDown, 0, "LC-2", "Pause after Shutdown is rejected with AGENT_STATE."},
		{"pause", check.Terminated, failure.AgentState, check.Terminated, 0, "LC-3", "Pause of a TERMINATED instance is rejected with AGENT_STATE."},

		{"resume", check.Uninitialized, ok, check.Uninitialized, 0, "LC-4", "Resume before Startup is OK and changes nothing."},
		{"resume", check.Initializing, ok, check.Initializing, 0, "LC-4", "Resume during the startup is OK and changes nothing."},
		{"resume", check.Ready, ok, check.Ready, 0, "LC-4", "Resume of a READY instance is OK and changes nothing."},
		{"resume", check.Busy, ok, check.Busy, 0, "LC-4", "Resume of a BUSY instance is OK and changes nothing."},
		{"resume", check.Paused, ok, check.Ready, 1, "LC-2", "Resume takes a PAUSED instance to READY."},
		{"resume", check.ShuttingDown, failure.AgentState, check.ShuttingDown, 0, "LC-2", "Resume after Shutdown is rejected with AGENT_STATE."},
		{"resume", check.Terminated, failure.AgentState, check.Terminated, 0, "LC-3", "Resume of a TERMINATED instance is rejected with AGENT_STATE."},

		{"shutdown", check.Uninitialized, ok, check.Terminated, 2, "LC-22", "Shutdown ends an instance that was never started."},
		{
			"shutdown", check.Initializing, ok, check.Terminated, 2, "LC-2",
			"Shutdown cancels a startup and ends the instance, also when the startup hook hangs.",
		},
		{"shutdown", check.Ready, ok, check.Terminated, 2, "LC-2", "Shutdown ends a READY instance."},
		{"shutdown", check.Busy, ok, check.Terminated, 2, "LC-29c", "Shutdown without time to drain cancels the steps and ends the instance."},
		{"shutdown", check.Paused, ok, check.Terminated, 2, "LC-2", "Shutdown ends a PAUSED instance."},
		{"shutdown", check.ShuttingDown, ok, check.Terminated, 1, "LC-20", "Shutdown joins the one that runs; its shorter deadline counts."},
		{"shutdown", check.Terminated, ok, check.Terminated, 0, "LC-20", "Shutdown of a TERMINATED instance is OK and changes nothing."},

		{"queries", check.Uninitialized, ok, check.Uninitialized, 0, "LC-5", "GetState, GetMetrics, OwnsState and WatchState answer before Startup."},
		{"queries", check.Initializing, ok, check.Initializing, 0, "LC-5", "GetState, GetMetrics, OwnsState and WatchState answer during the startup."},
		{"queries", check.Ready, ok, check.Ready, 0, "LC-5", "GetState, GetMetrics, OwnsState and WatchState answer in READY."},
		{"queries", check.Busy, ok, check.Busy, 0, "LC-5", "GetState, GetMetrics, OwnsState and WatchState answer in BUSY."},
		{"queries", check.Paused, ok, check.Paused, 0, "LC-5", "GetState, GetMetrics, OwnsState and WatchState answer in PAUSED."},
		{"queries", check.ShuttingDown, ok, check.ShuttingDown, 0, "LC-5", "GetState, GetMetrics, OwnsState and WatchState answer in SHUTTING_DOWN."},
		{"queries", check.Terminated, ok, check.Terminated, 0, "LC-5", "GetState, GetMetrics, OwnsState and WatchState answer in TERMINATED."},
	}
}

// requiredStates maps each verb to a state that the error must name as required when the verb is rejected (LC-26).
var requiredStates = map[string]string{"startup": "uninitialized", "step": "ready", "pause": "ready", "resume": "paused"}

// Checks returns the checks of this package in the order of a report.
func Checks() []check.Check {
	return slices.Concat(verbChecks(), startupChecks(), admissionChecks(), pauseChecks(), shutdownChecks())
}

func verbChecks() []check.Check {
	var checks []check.Check
	for _, r := range verbCases() {
		id := "verbs/" + r.verb + "-in-" + strings.ReplaceAll(strings.ToLower(check.StateName(r.state)), "_", "-")
		checks = append(checks, check.Check{ID: id, Requirement: r.requirement, Title: r.title, Exclusive: r.verb == "queries", Run: r.run})
	}
	return append(checks, check.Check{
		ID: "verbs/if-state-version", Requirement: "PauseRequest.if_state_version", Run: checkIfStateVersion,
		Title: "A verb whose if_state_version is not the state_version fails with AGENT_STATE and changes nothing; with the right one it works.",
	})
}

func checkIfStateVersion(t *check.T) {
	in := t.MakeInstance(check.InstanceSpec{})
	for _, v := range []struct {
		name string
		call func(version *uint64) error
		left troupev1.InstanceState
	}{
		{"Startup", func(version *uint64) error {
			_, err := in.Lifecycle.Startup(t.Ctx, &troupev1.StartupRequest{IfStateVersion: version})
			return err
		}, check.Ready},
		{"Pause", func(version *uint64) error {
			_, err := in.Lifecycle.Pause(t.Ctx, &troupev1.PauseRequest{IfStateVersion: version})
			return err
		}, check.Paused},
		{"Resume", func(version *uint64) error {
			_, err := in.Lifecycle.Resume(t.Ctx, &troupev1.ResumeRequest{IfStateVersion: version})
			return err
		}, check.Ready},
		{"Shutdown", func(version *uint64) error {
			_, err := in.Lifecycle.Shutdown(t.Ctx, &troupev1.ShutdownRequest{IfStateVersion: version})
			return err
		}, check.Terminated},
	} {
		before := in.Status()
		other := before.GetStateVersion() + 1
		t.ErrorHasMode(v.name+" with another if_state_version", v.call(&other), failure.AgentState)
		in.RequireUnchanged(v.name+" with another if_state_version", before)
		right := before.GetStateVersion()
		t.NoError(v.name+" with the right if_state_version", v.call(&right))
		in.RequireState("after "+v.name, v.left)
	}
}

func (v verbCase) run(t *check.T) {
	in := v.reachState(t)
	before := in.Status()
	joins := v.verb == "startup" && v.state == check.Initializing
	if !joins { // a start that ends by itself may have ended already
		check.Equal(t, "state before the verb", v.state, before.GetState())
	}
	reply, err := in.CallVerb(v.verb)
	if v.rejectMode != failure.Unknown {
		e := t.FailureWithMode(v.verb, err, v.rejectMode)
		if v.rejectMode == failure.AgentState {
			check.Equal(t, "fact actual_state of the failure", strings.ToLower(check.StateName(v.state)), e.Facts["actual_state"])
			required := e.Facts["required_state"]
			t.True(strings.Contains(required, requiredStates[v.verb]), "fact required_state of the failure", requiredStates[v.verb]+" among it",
				check.FormatValue(required))
		}
		in.RequireUnchanged("a rejected verb", before)
		return
	}
	t.NoError(v.verb, err)
	if reply != nil {
		check.Equal(t, "state in the reply", v.nextState, reply.GetState())
	}
	if v.transitions == 0 {
		if v.verb == "step" { // the stream may end shortly before in_flight is lowered
			in.AwaitSteps(before.GetInFlight(), check.AnswerLimit)
		}
		in.RequireUnchanged(v.verb, before)
		return
	}
	after := in.RequireState("after the verb", v.nextState)
	if joins {
		check.Equal(t, "state_version after one start", 2, after.GetStateVersion())
		return
	}
	check.Equal(t, "transitions that the verb made", v.transitions, after.GetStateVersion()-before.GetStateVersion())
}

// reachState creates an instance and brings it to the state in which the verb is called.
func (v verbCase) reachState(t *check.T) *check.Instance {
	if v.state == check.Uninitialized {
		return t.MakeInstance(check.InstanceSpec{})
	}
	if v.state == check.Initializing {
		hook := check.HookHangs // keeps the instance in INITIALIZING
		if v.verb == "startup" {
			hook = check.HookSlow
		}
		in := t.MakeInstance(check.InstanceSpec{Startup: hook, StartupTimeout: check.CheckTimeout})
		in.StartupAsync()
		in.AwaitStartup()
		return in
	}
	in := t.StartInstance(check.InstanceSpec{})
	switch v.state {
	case check.Busy:
		text := "sleep 30s"
		if v.verb == "pause" {
			text = "sleep 1500ms" // long enough for the verb to arrive while the step runs
		}
		in.StartStep(text).AwaitAdmission(t)
	case check.Paused:
		_, err := in.Pause(t.Ctx, "to be paused")
		t.NoError("Pause", err)
	case check.ShuttingDown:
		in.StartStep("sleep 30s").AwaitAdmission(t)
		in.ShutdownAsync(time.Minute)
		in.AwaitState(check.ShuttingDown, check.AnswerLimit)
	case check.Terminated:
		_, err := in.Shutdown(t.Ctx, 0, "to be terminated")
		t.NoError("Shutdown", err)
	default: // READY: StartInstance has reached it
	}
	return in
}
