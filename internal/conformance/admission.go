package conformance

import (
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

func admissionChecks() []Check {
	return []Check{
		{
			ID: "admission/one-at-capacity-1", Requirement: "LC-29a", run: admits(1, callers),
			Title: "Of simultaneous steps at capacity 1 exactly one is admitted; the others get INSTANCE_FULL before any response header.",
		},
		{
			ID: "admission/never-above-capacity", Requirement: "LC-29a", run: admits(3, callers),
			Title: "Of simultaneous steps exactly capacity are admitted; the others get INSTANCE_FULL before any response header.",
		},
		{
			ID: "admission/busy-from-first-to-last-step", Requirement: "LC-27", run: admissionBusy,
			Title: "The state is BUSY from the first step to the end of the last one, and steps in between make no transition.",
		},
		{
			ID: "admission/a-step-that-ended-makes-room", Requirement: "LC-28", run: admissionMakesRoom,
			Title: "When a step has ended for its caller, the next one is admitted.",
		},
	}
}

func admits(capacity int32, steps int) func(*trial) {
	return func(t *trial) {
		in := t.ready(spec{capacity: capacity})
		var sent []*step
		for range steps {
			sent = append(sent, in.begin("sleep 30s"))
		}
		t.until(fmt.Sprintf("%d of %d simultaneous steps refused", steps-int(capacity), steps), soon, func() (bool, any) {
			refused := 0
			for _, s := range sent {
				if !s.running() {
					refused++
				}
			}
			return refused >= steps-int(capacity), refused
		})
		t.idle(100 * time.Millisecond) // for one that comes late
		admitted := 0
		for _, s := range sent {
			if s.running() {
				admitted++
				continue
			}
			t.refused("a step above capacity", s.err, failure.InstanceFull)
			t.that(!s.value.header, "a step that is refused", "no response header", "one")
		}
		equal(t, "steps admitted", int(capacity), admitted)
		equal(t, "in_flight", capacity, in.isIn("at capacity", busy).GetInFlight())
		for _, s := range sent {
			s.cancel()
		}
		in.becomes(ready, soon)
		equal(t, "in_flight when no step runs", 0, in.status().GetInFlight())
	}
}

func admissionBusy(t *trial) {
	in := t.ready(spec{capacity: 3})
	before := in.status().GetStateVersion()
	var sent []*step
	for range 3 {
		sent = append(sent, in.begin("sleep 30s").isAdmitted(t))
	}
	for left := int32(3); left > 0; left-- {
		in.runs(left, soon)
		equal(t, "transitions while steps run", 1, in.isIn("while steps run", busy).GetStateVersion()-before)
		sent[left-1].cancel()
	}
	in.becomes(ready, soon)
	s := in.status()
	equal(t, "transitions of three overlapping steps: to BUSY and back", 2, s.GetStateVersion()-before)
}

func admissionMakesRoom(t *trial) {
	in := t.ready(spec{capacity: 1})
	for n := range 20 {
		text := fmt.Sprintf("step %d", n)
		equal(t, "answer of one of 20 steps in a row at capacity 1", text, in.says("say "+text))
	}
	in.isIn("after the steps", ready)
}
