package conformance

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

func pauseChecks() []Check {
	return []Check{
		{
			ID: "pause/closes-admission-at-once", Requirement: "PauseRequest", run: pauseCloses,
			Title: "While a Pause waits for running steps, new ones are refused with INSTANCE_PAUSED.",
		},
		{
			ID: "pause/waits-for-running-steps", Requirement: "LifecycleService.Pause", run: pauseWaits,
			Title: "Pause returns when no step runs and the state is PAUSED, and not before.",
		},
		{
			ID: "pause/a-second-one-waits-too", Requirement: "LifecycleService.Pause", run: pauseTwice,
			Title: "A Pause while another one waits returns with it, and makes no transition of its own.",
		},
		{
			ID: "pause/its-deadline-opens-admission", Requirement: "LifecycleService.Pause", run: pauseDeadline,
			Title: "When the deadline of a waiting Pause passes, admission is open again and the instance is never PAUSED.",
		},
		{
			ID: "pause/another-callers-deadline-does-not-end-it", Requirement: "LifecycleService.Pause", run: pauseAnothersDeadline,
			Title: "A Pause that runs out of time does not end another one that waits: admission stays closed, and the instance is PAUSED.",
		},
		{
			ID: "pause/resume-takes-it-back", Requirement: "LifecycleService.Resume", run: pauseTakenBack,
			Title: "Resume takes a waiting Pause back: admission is open, the Pause fails, and the instance is not PAUSED later.",
		},
		{
			ID: "pause/shutdown-overtakes-it", Requirement: "LC-2", run: pauseOvertaken,
			Title: "Shutdown ends a waiting Pause, which fails with AGENT_STATE.",
		},
		{
			ID: "pause/and-resume-again-and-again", Requirement: "LC-2", run: pauseCycles,
			Title: "An instance that was paused and resumed works as before.",
		},
	}
}

// pausingBusy is an instance whose Pause waits for a step.
func pausingBusy(t *trial, text string) (*instance, *step, *pending[*status]) {
	in := t.ready(spec{capacity: 2})
	s := in.begin(text).isAdmitted(t)
	p := in.pausing("a look inside")
	in.isPausing()
	return in, s, p
}

// isPausing waits until the status says that a Pause waits.
func (in *instance) isPausing() {
	in.t.until("pausing in the status of a BUSY instance", soon, func() (bool, any) {
		s := in.status()
		return s.GetPausing() || s.GetState() == paused, brieflyStatus(s)
	})
}

func pauseCloses(t *trial) {
	in, s, p := pausingBusy(t, "sleep 1s")
	refused := in.begin("say no")
	o, err := refused.wait(t, "ExecuteStep", soon)
	if s.running() {
		t.refused("a step while a Pause waits", err, failure.InstancePaused)
		t.that(!o.header, "a step that is refused", "no response header", "one")
	}
	s.succeeds(t, 5*time.Second)
	_, err = p.wait(t, "Pause", soon)
	t.ok("Pause", err)
}

func pauseWaits(t *trial) {
	in, s, p := pausingBusy(t, "sleep 1500ms")
	got, err := p.wait(t, "Pause", 5*time.Second)
	t.ok("Pause", err)
	equal(t, "state in the reply of Pause", paused, got.GetState())
	equal(t, "in_flight in the reply of Pause", 0, got.GetInFlight())
	now := in.isIn("after Pause", paused)
	equal(t, "pausing when PAUSED", false, now.GetPausing())
	s.succeeds(t, soon)
	early := s.value.answeredAt.Sub(p.ended)
	t.that(early < slack, "Pause", "an answer when the step ended", "one "+early.Round(time.Millisecond).String()+" before")
}

func pauseTwice(t *trial) {
	in, s, p := pausingBusy(t, "sleep 500ms")
	before := in.status().GetStateVersion()
	second := in.pausing("a second look")
	_, err := second.wait(t, "the second Pause", 5*time.Second)
	t.ok("the second Pause", err)
	_, err = p.wait(t, "Pause", soon)
	t.ok("Pause", err)
	s.succeeds(t, soon)
	equal(t, "transitions of two Pauses", 1, in.isIn("after both", paused).GetStateVersion()-before)
}

func pauseDeadline(t *trial) {
	in := t.ready(spec{capacity: 2})
	s := in.begin("sleep 30s").isAdmitted(t)
	before := in.status().GetStateVersion()
	ctx, cancel := context.WithTimeout(t.ctx, 300*time.Millisecond)
	defer cancel()
	_, err := in.pause(ctx, "not for long")
	t.failed("Pause whose deadline passed while a step ran", err)
	if mode := parse(err).Mode; mode != failure.AgentTimeout && mode != failure.SystemTimeout { // the latter is told by the caller's own side
		t.failf("Pause whose deadline passed: expected AGENT_TIMEOUT, actual %s", brief(err))
	}
	t.until("pausing taken back after the deadline of Pause", time.Second, func() (bool, any) {
		now := in.status()
		return !now.GetPausing(), brieflyStatus(now)
	})
	equal(t, "answer of a step after the deadline of Pause", "yes", in.says("say yes"))
	equal(t, "transitions of a Pause that failed", 0, in.isIn("after it", busy).GetStateVersion()-before)
	s.cancel()
	in.becomes(ready, soon)
}

func pauseAnothersDeadline(t *trial) {
	in, s, p := pausingBusy(t, "sleep 1500ms")
	ctx, cancel := context.WithTimeout(t.ctx, 300*time.Millisecond)
	defer cancel()
	_, err := in.pause(ctx, "a hasty look")
	if s.running() {
		t.failed("Pause whose deadline passed while a step ran", err)
	}
	t.idle(100 * time.Millisecond) // for a worker that hears of the deadline late
	refused := in.begin("say no")
	_, err = refused.wait(t, "ExecuteStep", soon)
	if s.running() {
		t.refused("a step while another Pause waits", err, failure.InstancePaused)
	}
	got, err := p.wait(t, "Pause", 5*time.Second)
	t.ok("the Pause that has time", err)
	equal(t, "state in its reply", paused, got.GetState())
	s.succeeds(t, soon)
	in.isIn("after it", paused)
}

func pauseTakenBack(t *trial) {
	in, s, p := pausingBusy(t, "sleep 1s")
	got, err := in.resume(t.ctx, "seen enough")
	t.ok("Resume", err)
	equal(t, "pausing in the reply of Resume", false, got.GetPausing())
	_, err = p.wait(t, "a Pause that was taken back", soon)
	t.failed("a Pause that was taken back", err)
	equal(t, "answer of a step after Resume", "yes", in.says("say yes"))
	s.succeeds(t, 5*time.Second)
	in.isIn("when the step has ended", ready)
}

func pauseOvertaken(t *trial) {
	in, _, p := pausingBusy(t, "sleep 30s")
	_, err := in.stopping(0).wait(t, "Shutdown", time.Second+slack)
	t.ok("Shutdown", err)
	_, err = p.wait(t, "Pause", soon)
	t.refused("a Pause that a Shutdown overtakes", err, failure.AgentState)
	equal(t, "pausing when TERMINATED", false, in.isIn("in the end", terminated).GetPausing())
}

func pauseCycles(t *trial) {
	in := t.ready(spec{})
	for range 5 {
		_, err := in.pause(t.ctx, "")
		t.ok("Pause", err)
		_, err = in.resume(t.ctx, "")
		t.ok("Resume", err)
		equal(t, "answer of a step", "hello", in.says("say hello"))
	}
	equal(t, "transitions of a start and 5 times Pause, Resume and a step", 22, in.isIn("in the end", ready).GetStateVersion())
}
