package conformance

import (
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// row is a cell of the table of states and verbs (docs/lifecycle.md).
type row struct {
	verb        string
	in          troupev1.InstanceState
	mode        failure.Mode // with which it is refused; empty: OK
	to          troupev1.InstanceState
	moves       uint64 // transitions that it makes; 0: it changes nothing at all
	requirement string
	title       string
}

// soon is how long an answer may take that waits for nothing.
const soon = 2 * time.Second

func verbTable() []row {
	const ok = failure.Unknown
	return []row{
		{"startup", uninitialized, ok, ready, 2, "LC-2", "Startup takes a new instance to READY."},
		{"startup", initializing, ok, ready, 1, "LC-9", "Startup joins the one that runs, and returns when that has ended."},
		{"startup", ready, ok, ready, 0, "LC-8", "Startup of a READY instance is OK and changes nothing."},
		{"startup", busy, ok, busy, 0, "LC-8", "Startup of a BUSY instance is OK and changes nothing."},
		{"startup", paused, ok, paused, 0, "LC-8", "Startup of a PAUSED instance is OK and changes nothing."},
		{"startup", shuttingDown, failure.AgentState, shuttingDown, 0, "LC-2", "Startup after Shutdown is refused with AGENT_STATE."},
		{"startup", terminated, failure.AgentState, terminated, 0, "LC-3", "Startup of a TERMINATED instance is refused with AGENT_STATE."},

		{"step", uninitialized, failure.AgentState, uninitialized, 0, "LC-26", "A step before Startup is refused with AGENT_STATE."},
		{"step", initializing, failure.AgentState, initializing, 0, "LC-26", "A step during the startup is refused with AGENT_STATE."},
		{"step", ready, ok, ready, 2, "LC-27", "A step makes a READY instance BUSY, and READY again when it ends."},
		{"step", busy, ok, busy, 0, "LC-27", "A BUSY instance takes steps up to its capacity, and stays BUSY."},
		{"step", paused, failure.InstancePaused, paused, 0, "LC-26", "A PAUSED instance refuses steps with INSTANCE_PAUSED."},
		{"step", shuttingDown, failure.InstanceDraining, shuttingDown, 0, "LC-29c", "An instance that shuts down refuses steps with INSTANCE_DRAINING."},
		{"step", terminated, failure.InstanceDraining, terminated, 0, "LC-3", "A TERMINATED instance refuses steps with INSTANCE_DRAINING."},

		{"pause", uninitialized, ok, uninitialized, 0, "LC-4", "Pause before Startup is OK and changes nothing."},
		{"pause", initializing, ok, initializing, 0, "LC-4", "Pause during the startup is OK and changes nothing."},
		{"pause", ready, ok, paused, 1, "LC-2", "Pause takes a READY instance to PAUSED."},
		{"pause", busy, ok, paused, 1, "LC-4", "Pause of a BUSY instance waits until no step runs, and then it is PAUSED."},
		{"pause", paused, ok, paused, 0, "LC-4", "Pause of a PAUSED instance is OK and changes nothing."},
		{"pause", shuttingDown, failure.AgentState, shuttingDown, 0, "LC-2", "Pause after Shutdown is refused with AGENT_STATE."},
		{"pause", terminated, failure.AgentState, terminated, 0, "LC-3", "Pause of a TERMINATED instance is refused with AGENT_STATE."},

		{"resume", uninitialized, ok, uninitialized, 0, "LC-4", "Resume before Startup is OK and changes nothing."},
		{"resume", initializing, ok, initializing, 0, "LC-4", "Resume during the startup is OK and changes nothing."},
		{"resume", ready, ok, ready, 0, "LC-4", "Resume of a READY instance is OK and changes nothing."},
		{"resume", busy, ok, busy, 0, "LC-4", "Resume of a BUSY instance is OK and changes nothing."},
		{"resume", paused, ok, ready, 1, "LC-2", "Resume takes a PAUSED instance to READY."},
		{"resume", shuttingDown, failure.AgentState, shuttingDown, 0, "LC-2", "Resume after Shutdown is refused with AGENT_STATE."},
		{"resume", terminated, failure.AgentState, terminated, 0, "LC-3", "Resume of a TERMINATED instance is refused with AGENT_STATE."},

		{"shutdown", uninitialized, ok, terminated, 2, "LC-22", "Shutdown ends an instance that was never started."},
		{"shutdown", initializing, ok, terminated, 2, "LC-2", "Shutdown cancels a startup and ends the instance, also when the startup hook hangs."},
		{"shutdown", ready, ok, terminated, 2, "LC-2", "Shutdown ends a READY instance."},
		{"shutdown", busy, ok, terminated, 2, "LC-29c", "Shutdown without time to drain cancels the steps and ends the instance."},
		{"shutdown", paused, ok, terminated, 2, "LC-2", "Shutdown ends a PAUSED instance."},
		{"shutdown", shuttingDown, ok, terminated, 1, "LC-20", "Shutdown joins the one that runs; its shorter deadline counts."},
		{"shutdown", terminated, ok, terminated, 0, "LC-20", "Shutdown of a TERMINATED instance is OK and changes nothing."},

		{"queries", uninitialized, ok, uninitialized, 0, "LC-5", "GetState, GetMetrics, OwnsState and WatchState answer before Startup."},
		{"queries", initializing, ok, initializing, 0, "LC-5", "GetState, GetMetrics, OwnsState and WatchState answer during the startup."},
		{"queries", ready, ok, ready, 0, "LC-5", "GetState, GetMetrics, OwnsState and WatchState answer in READY."},
		{"queries", busy, ok, busy, 0, "LC-5", "GetState, GetMetrics, OwnsState and WatchState answer in BUSY."},
		{"queries", paused, ok, paused, 0, "LC-5", "GetState, GetMetrics, OwnsState and WatchState answer in PAUSED."},
		{"queries", shuttingDown, ok, shuttingDown, 0, "LC-5", "GetState, GetMetrics, OwnsState and WatchState answer in SHUTTING_DOWN."},
		{"queries", terminated, ok, terminated, 0, "LC-5", "GetState, GetMetrics, OwnsState and WatchState answer in TERMINATED."},
	}
}

// requires are states of which a refused verb says that it needs one (LC-26).
var requires = map[string]string{"startup": "uninitialized", "step": "ready", "pause": "ready", "resume": "paused"}

func verbChecks() []Check {
	var checks []Check
	for _, r := range verbTable() {
		id := "verbs/" + r.verb + "-in-" + strings.ReplaceAll(strings.ToLower(stateName(r.in)), "_", "-")
		checks = append(checks, Check{ID: id, Requirement: r.requirement, Title: r.title, alone: r.verb == "queries", run: r.run})
	}
	return checks
}

func (r row) run(t *trial) {
	in := r.arrive(t)
	before := in.status()
	joins := r.verb == "startup" && r.in == initializing
	if !joins { // a start that ends by itself may have
		equal(t, "state before the verb", r.in, before.GetState())
	}
	reply, err := in.apply(r.verb)
	if r.mode != failure.Unknown {
		e := t.refusal(r.verb, err, r.mode)
		if r.mode == failure.AgentState {
			equal(t, "fact actual_state of the failure", strings.ToLower(stateName(r.in)), e.Facts["actual_state"])
			required := e.Facts["required_state"]
			t.that(strings.Contains(required, requires[r.verb]), "fact required_state of the failure", requires[r.verb]+" among it", show(required))
		}
		in.unchanged("a verb that is refused", before)
		return
	}
	t.ok(r.verb, err)
	if reply != nil {
		equal(t, "state in the reply", r.to, reply.GetState())
	}
	if r.moves == 0 {
		if r.verb == "step" { // its end is told by the stream, and then it no longer counts
			in.runs(before.GetInFlight(), soon)
		}
		in.unchanged(r.verb, before)
		return
	}
	after := in.isIn("after the verb", r.to)
	if joins {
		equal(t, "state_version after one start", 2, after.GetStateVersion())
		return
	}
	equal(t, "transitions that the verb made", r.moves, after.GetStateVersion()-before.GetStateVersion())
}

// arrive makes an instance and takes it to the state in which the verb comes.
func (r row) arrive(t *trial) *instance {
	if r.in == uninitialized {
		return t.make(spec{})
	}
	if r.in == initializing {
		hook := hangs // so that it stays there
		if r.verb == "startup" {
			hook = isSlow
		}
		in := t.make(spec{startup: hook, startupTimeout: checkTime})
		in.starting()
		in.begins()
		return in
	}
	in := t.ready(spec{})
	switch r.in {
	case busy:
		text := "sleep 30s"
		if r.verb == "pause" {
			text = "sleep 1500ms" // long enough for the verb to come while it runs
		}
		in.begin(text).isAdmitted(t)
	case paused:
		_, err := in.pause(t.ctx, "to be paused")
		t.ok("Pause", err)
	case shuttingDown:
		in.begin("sleep 30s").isAdmitted(t)
		in.stopping(time.Minute)
		in.becomes(shuttingDown, soon)
	case terminated:
		_, err := in.shutdown(t.ctx, 0, "to be terminated")
		t.ok("Shutdown", err)
	default: // READY it is
	}
	return in
}

// apply does the verb, and returns the status of its reply where it has one.
func (in *instance) apply(verb string) (*status, error) {
	ctx := in.t.ctx
	switch verb {
	case "startup":
		return in.startup(ctx)
	case "pause":
		return in.pause(ctx, "a pause")
	case "resume":
		return in.resume(ctx, "a resume")
	case "shutdown":
		reply, err := in.shutdown(ctx, 0, "a shutdown")
		return reply.GetStatus(), err
	case "step":
		s := in.begin("say hello")
		o, err := s.wait(in.t, "ExecuteStep", 5*time.Second)
		if err != nil {
			in.t.that(!o.header, "a step that is refused", "no response header", "one")
			return nil, err
		}
		equal(in.t, "answer of the step", "hello", s.succeeds(in.t, soon).text())
		return nil, nil //nolint:nilnil // the reply of a step has no status
	default: // queries
		in.answers()
		return nil, nil //nolint:nilnil // queries have no status
	}
}
