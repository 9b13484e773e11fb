package lifecycle

import (
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	"github.com/troupe-dev/troupe/pkg/failure"
)

func admissionChecks() []check.Check {
	return []check.Check{
		{
			ID: "admission/one-at-capacity-1", Requirement: "LC-29a", Run: checkAdmitsUpToCapacity(1, check.ConcurrentCallers),
			Title: "Of simultaneous steps at capacity 1 exactly one is admitted; the others get INSTANCE_FULL before any response header.",
		},
		{
			ID: "admission/never-above-capacity", Requirement: "LC-29a", Run: checkAdmitsUpToCapacity(3, check.ConcurrentCallers),
			Title: "Of simultaneous steps exactly capacity are admitted; the others get INSTANCE_FULL before any response header.",
		},
		{
			ID: "admission/busy-from-first-to-last-step", Requirement: "LC-27", Run: checkBusyWhileStepsRun,
			Title: "The state is BUSY from the first step to the end of the last one, and steps in between make no transition.",
		},
		{
			ID: "admission/ended-step-frees-a-slot", Requirement: "LC-28", Run: checkEndedStepFreesSlot,
			Title: "When a step has ended for its caller, the next one is admitted.",
		},
	}
}

func checkAdmitsUpToCapacity(capacity int32, steps int) func(*check.T) {
	return func(t *check.T) {
		in := t.StartInstance(check.InstanceSpec{Capacity: capacity})
		var sent []*check.Step
		for range steps {
			sent = append(sent, in.StartStep("sleep 30s"))
		}
		t.Eventually(fmt.Sprintf("%d of %d simultaneous steps rejected", steps-int(capacity), steps), check.AnswerLimit, func() (bool, any) {
			rejected := 0
			for _, s := range sent {
				if !s.Running() {
					rejected++
				}
			}
			return rejected >= steps-int(capacity), rejected
		})
		t.Sleep(100 * time.Millisecond) // a late change would still be noticed
		admitted := 0
		for _, s := range sent {
			if s.Running() {
				admitted++
				continue
			}
			t.ErrorHasMode("a step above capacity", s.Err, failure.InstanceFull)
			t.True(!s.Value.HasHeader, "a rejected step", "no response header", "one")
		}
		check.Equal(t, "steps admitted", int(capacity), admitted)
		check.Equal(t, "in_flight", capacity, in.RequireState("at capacity", check.Busy).GetInFlight())
		for _, s := range sent {
			s.Cancel()
		}
		in.AwaitState(check.Ready, check.AnswerLimit)
		check.Equal(t, "in_flight when no step runs", 0, in.Status().GetInFlight())
	}
}

func checkBusyWhileStepsRun(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{Capacity: 3})
	before := in.Status().GetStateVersion()
	var sent []*check.Step
	for range 3 {
		sent = append(sent, in.StartStep("sleep 30s").AwaitAdmission(t))
	}
	for left := int32(3); left > 0; left-- {
		in.AwaitSteps(left, check.AnswerLimit)
		check.Equal(t, "transitions while steps run", 1, in.RequireState("while steps run", check.Busy).GetStateVersion()-before)
		sent[left-1].Cancel()
	}
	in.AwaitState(check.Ready, check.AnswerLimit)
	s := in.Status()
	check.Equal(t, "transitions of three overlapping steps: to BUSY and back", 2, s.GetStateVersion()-before)
}

func checkEndedStepFreesSlot(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{Capacity: 1})
	for n := range 20 {
		text := fmt.Sprintf("step %d", n)
		check.Equal(t, "answer of one of 20 steps in a row at capacity 1", text, in.RunStep("say "+text))
	}
	in.RequireState("after the steps", check.Ready)
}
