package lifecycle

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	"github.com/troupe-dev/troupe/pkg/failure"
)

func pauseChecks() []check.Check {
	return []check.Check{
		{
			ID: "pause/closes-admission-at-once", Requirement: "PauseRequest", Run: checkPauseClosesAdmission,
			Title: "While a Pause waits for running steps, new ones are rejected with INSTANCE_PAUSED.",
		},
		{
			ID: "pause/waits-for-running-steps", Requirement: "LifecycleService.Pause", Run: checkPauseWaitsForSteps,
			Title: "Pause returns when no step runs and the state is PAUSED, and not before.",
		},
		{
			ID: "pause/second-pause-waits", Requirement: "LifecycleService.Pause", Run: checkSecondPauseWaits,
			Title: "A Pause while another one waits returns with it, and makes no transition of its own.",
		},
		{
			ID: "pause/deadline-reopens-admission", Requirement: "LifecycleService.Pause", Run: checkPauseDeadlineReopensAdmission,
			Title: "When the deadline of a waiting Pause passes, admission is open again and the instance is never PAUSED.",
		},
		{
			ID: "pause/survives-another-callers-deadline", Requirement: "LifecycleService.Pause", Run: checkPauseSurvivesAnotherDeadline,
			Title: "When one of two waiting Pauses reaches its deadline, the other continues: admission stays closed, and the instance becomes PAUSED.",
		},
		{
			ID: "pause/resume-withdraws-it", Requirement: "LifecycleService.Resume", Run: checkResumeWithdrawsPause,
			Title: "Resume withdraws a waiting Pause: admission is open, the Pause fails, and the instance does not become PAUSED later.",
		},
		{
			ID: "pause/shutdown-ends-it", Requirement: "LC-2", Run: checkShutdownEndsPause,
			Title: "Shutdown ends a waiting Pause, which fails with AGENT_STATE.",
		},
		{
			ID: "pause/repeats", Requirement: "LC-2", Run: checkPauseRepeats,
			Title: "An instance that was paused and resumed works as before.",
		},
	}
}

// pauseBusyInstance returns an instance with a pending Pause that waits for a running step.
func pauseBusyInstance(t *check.T, text string) (*check.Instance, *check.Step, *check.Call[*check.Status]) {
	in := t.StartInstance(check.InstanceSpec{Capacity: 2})
	s := in.StartStep(text).AwaitAdmission(t)
	p := in.PauseAsync("a look inside")
	in.AwaitPausing()
	return in, s, p
}

func checkPauseClosesAdmission(t *check.T) {
	in, s, p := pauseBusyInstance(t, "sleep 1s")
	rejected := in.StartStep("say no")
	o, err := rejected.Wait(t, "ExecuteStep", check.AnswerLimit)
	if s.Running() {
		t.ErrorHasMode("a step while a Pause waits", err, failure.InstancePaused)
		t.True(!o.HasHeader, "a rejected step", "no response header", "one")
	}
	s.RequireSuccess(t, 5*time.Second)
	_, err = p.Wait(t, "Pause", check.AnswerLimit)
	t.NoError("Pause", err)
}

func checkPauseWaitsForSteps(t *check.T) {
	in, s, p := pauseBusyInstance(t, "sleep 1500ms")
	got, err := p.Wait(t, "Pause", 5*time.Second)
	t.NoError("Pause", err)
	check.Equal(t, "state in the reply of Pause", check.Paused, got.GetState())
	check.Equal(t, "in_flight in the reply of Pause", 0, got.GetInFlight())
	now := in.RequireState("after Pause", check.Paused)
	check.Equal(t, "pausing when PAUSED", false, now.GetPausing())
	s.RequireSuccess(t, check.AnswerLimit)
	early := s.Value.AnsweredAt.Sub(p.Ended)
	t.True(early < check.TimingSlack, "Pause", "an answer when the step ended", "one "+early.Round(time.Millisecond).String()+" before")
}

func checkSecondPauseWaits(t *check.T) {
	in, s, p := pauseBusyInstance(t, "sleep 500ms")
	before := in.Status().GetStateVersion()
	second := in.PauseAsync("a second look")
	_, err := second.Wait(t, "the second Pause", 5*time.Second)
	t.NoError("the second Pause", err)
	_, err = p.Wait(t, "Pause", check.AnswerLimit)
	t.NoError("Pause", err)
	s.RequireSuccess(t, check.AnswerLimit)
	check.Equal(t, "transitions of two Pauses", 1, in.RequireState("after both", check.Paused).GetStateVersion()-before)
}

func checkPauseDeadlineReopensAdmission(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{Capacity: 2})
	s := in.StartStep("sleep 30s").AwaitAdmission(t)
	before := in.Status().GetStateVersion()
	ctx, cancel := context.WithTimeout(t.Ctx, 300*time.Millisecond)
	defer cancel()
	_, err := in.Pause(ctx, "not for long")
	t.Error("Pause whose deadline passed while a step ran", err)
	if mode := check.ParseError(err).Mode; mode != failure.AgentTimeout && mode != failure.SystemTimeout { // the client itself may return SYSTEM_TIMEOUT
		t.Failf("Pause whose deadline passed: expected AGENT_TIMEOUT, actual %s", check.FormatError(err))
	}
	t.Eventually("pausing cleared after the deadline of Pause", time.Second, func() (bool, any) {
		now := in.Status()
		return !now.GetPausing(), check.FormatStatus(now)
	})
	check.Equal(t, "answer of a step after the deadline of Pause", "yes", in.RunStep("say yes"))
	check.Equal(t, "transitions of a Pause that failed", 0, in.RequireState("after it", check.Busy).GetStateVersion()-before)
	s.Cancel()
	in.AwaitState(check.Ready, check.AnswerLimit)
}

func checkPauseSurvivesAnotherDeadline(t *check.T) {
	in, s, p := pauseBusyInstance(t, "sleep 1500ms")
	ctx, cancel := context.WithTimeout(t.Ctx, 300*time.Millisecond)
	defer cancel()
	_, err := in.Pause(ctx, "a hasty look")
	if s.Running() {
		t.Error("Pause whose deadline passed while a step ran", err)
	}
	t.Sleep(100 * time.Millisecond) // the worker may notice the deadline late
	rejected := in.StartStep("say no")
	_, err = rejected.Wait(t, "ExecuteStep", check.AnswerLimit)
	if s.Running() {
		t.ErrorHasMode("a step while another Pause waits", err, failure.InstancePaused)
	}
	got, err := p.Wait(t, "Pause", 5*time.Second)
	t.NoError("the Pause that has time", err)
	check.Equal(t, "state in its reply", check.Paused, got.GetState())
	s.RequireSuccess(t, check.AnswerLimit)
	in.RequireState("after it", check.Paused)
}

func checkResumeWithdrawsPause(t *check.T) {
	in, s, p := pauseBusyInstance(t, "sleep 1s")
	got, err := in.Resume(t.Ctx, "seen enough")
	t.NoError("Resume", err)
	check.Equal(t, "pausing in the reply of Resume", false, got.GetPausing())
	_, err = p.Wait(t, "a Pause that was taken back", check.AnswerLimit)
	t.Error("a Pause that was taken back", err)
	check.Equal(t, "answer of a step after Resume", "yes", in.RunStep("say yes"))
	s.RequireSuccess(t, 5*time.Second)
	in.RequireState("when the step has ended", check.Ready)
}

func checkShutdownEndsPause(t *check.T) {
	in, _, p := pauseBusyInstance(t, "sleep 30s")
	_, err := in.ShutdownAsync(0).Wait(t, "Shutdown", time.Second+check.TimingSlack)
	t.NoError("Shutdown", err)
	_, err = p.Wait(t, "Pause", check.AnswerLimit)
	t.ErrorHasMode("a Pause that a Shutdown overtakes", err, failure.AgentState)
	check.Equal(t, "pausing when TERMINATED", false, in.RequireState("in the end", check.Terminated).GetPausing())
}

func checkPauseRepeats(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	for range 5 {
		_, err := in.Pause(t.Ctx, "")
		t.NoError("Pause", err)
		_, err = in.Resume(t.Ctx, "")
		t.NoError("Resume", err)
		check.Equal(t, "answer of a step", "hello", in.RunStep("say hello"))
	}
	check.Equal(t, "transitions of a start and 5 times Pause, Resume and a step", 22, in.RequireState("in the end", check.Ready).GetStateVersion())
}
