package observation

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func watchChecks() []check.Check {
	return []check.Check{
		{
			ID: "watch/begins-with-the-status", Requirement: "LifecycleService.WatchState", Run: checkWatchBeginsWithStatus,
			Title: "The first item contains the current status and no transition.",
		},
		{
			ID: "watch/reports-every-transition", Requirement: "LC-6", Run: checkWatchReportsAll,
			Title: "Every transition is reported once, in order and without a gap, and each begins where the one before ended.",
		},
		{
			ID: "watch/transitions-are-legal", Requirement: "LC-2", Run: checkWatchTransitionsAreLegal,
			Title: "Only the transitions of the table of states happen.",
		},
		{
			ID: "watch/is-live", Requirement: "LifecycleService.WatchState", Run: checkWatchIsLive,
			Title: "Transitions are reported as they happen, to every watcher alike.",
		},
		{
			ID: "watch/resumes-after-a-version", Requirement: "WatchStateRequest.after_version", Run: checkWatchResumesAfterVersion,
			Title: "A watch with after_version reports the transitions after it, and no others.",
		},
		{
			ID: "watch/ends-with-terminated", Requirement: "LifecycleService.WatchState", Run: checkWatchEndsWithTerminated,
			Title: "A watch ends with the transition to TERMINATED, also one that comes later.",
		},
		{
			ID: "watch/has-reason-and-trace", Requirement: "LC-14", Run: checkWatchHasReasonAndTrace,
			Title: "Transitions carry the reason and the trace of the call that led to them.",
		},
		{
			ID: "watch/rejects-future-versions", Requirement: "WatchStateRequest.after_version", Run: checkWatchRejectsFutureVersions,
			Title: "An after_version above the current one is an error.",
		},
		{
			ID: "watch/remembers-1024", Requirement: "LifecycleService.WatchState", Run: checkWatchHistoryLength, Exclusive: true,
			Title: "The latest 1,024 transitions are remembered; a watch that begins before them fails with RESOURCE_QUOTA.",
		},
	}
}

// runWholeLife takes an instance from creation to termination, with steps, pauses and resumes on the way.
func runWholeLife(t *check.T, before func(in *check.Instance)) *check.Instance {
	in := t.MakeInstance(check.InstanceSpec{})
	if before != nil {
		before(in)
	}
	_, err := in.Startup(t.Ctx)
	t.NoError("Startup", err)
	check.Equal(t, "answer of a step", "hello", in.RunStep("say hello"))
	in.StartStep("sleep 1500ms").AwaitAdmission(t) // long enough for the Pause to arrive while the step runs
	_, err = in.Pause(t.Ctx, "")
	t.NoError("Pause", err)
	_, err = in.Resume(t.Ctx, "")
	t.NoError("Resume", err)
	_, err = in.Pause(t.Ctx, "")
	t.NoError("Pause", err)
	_, err = in.Resume(t.Ctx, "")
	t.NoError("Resume", err)
	_, err = in.Shutdown(t.Ctx, 0, "")
	t.NoError("Shutdown", err)
	return in
}

// lifeStates lists the states that runWholeLife passes through.
var lifeStates = []troupev1.InstanceState{
	check.Initializing, check.Ready, check.Busy, check.Ready, check.Busy, check.Paused, check.Ready,
	check.Paused, check.Ready, check.ShuttingDown, check.Terminated,
}

// requireTransitions fails the check unless the transitions are those that runWholeLife causes after the given
// version.
func requireTransitions(t *check.T, w *check.WatchResult, after uint64) {
	from := check.Uninitialized
	if after > 0 {
		from = lifeStates[after-1]
	}
	var got []string
	for i, tr := range w.Transitions {
		got = append(got, check.StateName(tr.GetTo()))
		check.Equal(t, "version of the next transition that WatchState reports", after+uint64(i)+1, tr.GetVersion())
		check.Equal(t, "from of the transition to "+check.StateName(tr.GetTo()), from, tr.GetFrom())
		t.True(w.Statuses[i].GetStateVersion() >= tr.GetVersion(), "state_version beside transition", tr.GetVersion(), w.Statuses[i].GetStateVersion())
		from = tr.GetTo()
	}
	var want []string
	for _, s := range lifeStates[after:] {
		want = append(want, check.StateName(s))
	}
	check.Equal(t, "transitions that WatchState reports", strings.Join(want, ", "), strings.Join(got, ", "))
}

func checkWatchBeginsWithStatus(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	for after := range uint64(3) {
		w, err := in.Watch(t.Ctx, after, int(2-after))
		t.NoError("WatchState", err)
		check.Equal(t, "state in the first item of WatchState", check.Ready, w.First.GetState())
		check.Equal(t, "state_version in the first item of WatchState", 2, w.First.GetStateVersion())
	}
}

func checkWatchReportsAll(t *check.T) {
	in := runWholeLife(t, nil)
	w, err := in.Watch(t.Ctx, 0, -1)
	t.NoError("WatchState", err)
	requireTransitions(t, w, 0)
	var last time.Time
	for _, tr := range w.Transitions {
		at := tr.GetTime().AsTime()
		t.True(tr.GetTime() != nil && !at.Before(last), "time of transition", "not before the previous transition", tr.GetTime())
		last = at
	}
}

func checkWatchIsLive(t *check.T) {
	var watchers []*check.Call[*check.WatchResult]
	runWholeLife(t, func(in *check.Instance) {
		for range 5 {
			w := check.Go(t, func() (*check.WatchResult, error) { return in.Watch(t.Ctx, 0, -1) })
			watchers = append(watchers, w)
		}
	})
	for _, p := range watchers {
		w, err := p.Wait(t, "a watch of an instance that has ended", check.AnswerLimit)
		t.NoError("WatchState", err)
		requireTransitions(t, w, 0)
	}
}

func checkWatchResumesAfterVersion(t *check.T) {
	in := runWholeLife(t, nil)
	for after := range uint64(len(lifeStates) + 1) {
		w, err := in.Watch(t.Ctx, after, -1)
		t.NoError("WatchState", err)
		requireTransitions(t, w, after)
	}
}

func checkWatchEndsWithTerminated(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	live := check.Go(t, func() (*check.WatchResult, error) { return in.Watch(t.Ctx, 0, -1) })
	_, err := in.Shutdown(t.Ctx, 0, "")
	t.NoError("Shutdown", err)
	w, err := live.Wait(t, "the end of a watch after TERMINATED", check.AnswerLimit)
	t.NoError("WatchState", err)
	later := check.Go(t, func() (*check.WatchResult, error) { return in.Watch(t.Ctx, 4, -1) })
	w2, err := later.Wait(t, "the end of a watch that begins after TERMINATED", check.AnswerLimit)
	t.NoError("WatchState", err)
	t.True(w.EndedOK && w2.EndedOK, "both watches", "ended with OK", "open")
	t.True(len(w.Transitions) > 0, "transitions that the watch reports", "4", "none")
	check.Equal(t, "the last transition that a watch reports", check.Terminated, w.Transitions[len(w.Transitions)-1].GetTo())
	check.Equal(t, "transitions after TERMINATED", 0, len(w2.Transitions))
}

// legalTransitions maps each state to the states that may follow it (LC-2). SHUTTING_DOWN is left out, because it
// may follow every state.
var legalTransitions = map[troupev1.InstanceState][]troupev1.InstanceState{
	check.Uninitialized: {check.Initializing},
	check.Initializing:  {check.Ready},
	check.Ready:         {check.Busy, check.Paused},
	check.Busy:          {check.Ready, check.Paused},
	check.Paused:        {check.Ready},
	check.ShuttingDown:  {check.Terminated},
}

func checkWatchTransitionsAreLegal(t *check.T) {
	unused := t.MakeInstance(check.InstanceSpec{})
	_, err := unused.Shutdown(t.Ctx, 0, "")
	t.NoError("Shutdown", err)
	failing := t.MakeInstance(check.InstanceSpec{Startup: check.HookFails})
	_, err = failing.Startup(t.Ctx)
	t.Error("Startup of one that fails", err)
	failing.AwaitState(check.Terminated, check.AnswerLimit)
	drained := t.StartInstance(check.InstanceSpec{})
	s := drained.StartStep("sleep 200ms").AwaitAdmission(t)
	_, err = drained.Shutdown(t.Ctx, 5*time.Second, "")
	t.NoError("Shutdown", err)
	s.AwaitResult(t, check.AnswerLimit)
	for _, in := range []*check.Instance{unused, failing, drained, runWholeLife(t, nil)} {
		for _, tr := range in.Transitions() {
			ok := slices.Contains(legalTransitions[tr.GetFrom()], tr.GetTo()) ||
				tr.GetTo() == check.ShuttingDown && tr.GetFrom() != check.ShuttingDown && tr.GetFrom() != check.Terminated
			t.True(ok, "a transition", "one that the table of states has", check.StateName(tr.GetFrom())+" to "+check.StateName(tr.GetTo()))
		}
	}
}

func checkWatchHasReasonAndTrace(t *check.T) {
	in := t.MakeInstance(check.InstanceSpec{})
	const started, halted, gone = "0af7651916cd43dd8448eb211c80319a", "0af7651916cd43dd8448eb211c80319b", "0af7651916cd43dd8448eb211c80319d"
	_, err := in.Startup(t.TraceContext(started))
	t.NoError("Startup", err)
	req := in.NewRequest("say hello")
	in.SendStep(t.TraceContext(req.GetTraceId()), req, check.Session{}).RequireSuccess(t, check.AnswerLimit)
	_, err = in.Pause(t.TraceContext(halted), "a new model")
	t.NoError("Pause", err)
	_, err = in.Shutdown(t.TraceContext(gone), 0, "a new node")
	t.NoError("Shutdown", err)

	history := in.Transitions()
	check.Equal(t, "transitions", 7, len(history))
	for i, want := range []struct{ reason, trace string }{
		{"", started}, {"", started}, {"", req.GetTraceId()}, {"", ""}, {"a new model", halted}, {"a new node", gone}, {"a new node", gone},
	} {
		tr := history[i]
		what := " of the transition to " + check.StateName(tr.GetTo())
		if want.reason != "" {
			check.Equal(t, "reason"+what, want.reason, tr.GetReason())
		}
		if want.trace != "" {
			check.Equal(t, "trace_id"+what, want.trace, tr.GetTraceId())
		}
	}
}

func checkWatchRejectsFutureVersions(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	ctx, cancel := context.WithTimeout(t.Ctx, check.AnswerLimit)
	defer cancel()
	_, err := in.Watch(ctx, 3, 1)
	t.ErrorHasMode("WatchState with after_version 3 at version 2", err, failure.UserInvalidInput)
}

func checkWatchHistoryLength(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	for range 520 {
		_, err := in.Pause(t.Ctx, "")
		t.NoError("Pause", err)
		_, err = in.Resume(t.Ctx, "")
		t.NoError("Resume", err)
	}
	version := in.Status().GetStateVersion()
	w, err := in.Watch(t.Ctx, version-1024, 1024)
	t.NoError("WatchState of the latest 1,024 transitions", err)
	for i, tr := range w.Transitions {
		check.Equal(t, "version of the next transition", version-1024+uint64(i)+1, tr.GetVersion())
	}
	ctx, cancel := context.WithTimeout(t.Ctx, check.AnswerLimit)
	defer cancel()
	_, err = in.Watch(ctx, 0, int(version)+1)
	t.ErrorHasMode("WatchState of all transitions", err, failure.ResourceQuota)
}
