package conformance

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func watchChecks() []Check {
	return []Check{
		{
			ID: "watch/begins-with-the-status", Requirement: "LifecycleService.WatchState", run: watchBegins,
			Title: "The first item has the status now, and no transition.",
		},
		{
			ID: "watch/tells-every-transition", Requirement: "LC-6", run: watchTellsAll,
			Title: "Every transition is told once, in order and without a gap, and each begins where the one before ended.",
		},
		{
			ID: "watch/transitions-are-legal", Requirement: "LC-2", run: watchLegal,
			Title: "Only the transitions of the table of states happen.",
		},
		{
			ID: "watch/is-live", Requirement: "LifecycleService.WatchState", run: watchLive,
			Title: "Transitions are told as they happen, to every watcher alike.",
		},
		{
			ID: "watch/resumes-after-a-version", Requirement: "WatchStateRequest.after_version", run: watchResumes,
			Title: "A watch with after_version tells the transitions above it, and no other.",
		},
		{
			ID: "watch/ends-with-terminated", Requirement: "LifecycleService.WatchState", run: watchEnds,
			Title: "A watch ends with the transition to TERMINATED, also one that comes later.",
		},
		{
			ID: "watch/says-why-and-by-whom", Requirement: "LC-14", run: watchSaysWhy,
			Title: "Transitions carry the reason and the trace of the call that led to them.",
		},
		{
			ID: "watch/refuses-the-future", Requirement: "WatchStateRequest.after_version", run: watchFuture,
			Title: "An after_version above the current one is an error.",
		},
		{
			ID: "watch/remembers-1024", Requirement: "LifecycleService.WatchState", run: watchRemembers, alone: true,
			Title: "The latest 1,024 transitions are remembered; a watch that begins before them fails with RESOURCE_QUOTA.",
		},
	}
}

// whole is the life of an instance with a step, a pause while busy, and a resume.
func (t *trial) whole(before func(in *instance)) *instance {
	in := t.make(spec{})
	if before != nil {
		before(in)
	}
	_, err := in.startup(t.ctx)
	t.ok("Startup", err)
	equal(t, "answer of a step", "hello", in.says("say hello"))
	in.begin("sleep 1500ms").isAdmitted(t) // long enough for the Pause to come while it runs
	_, err = in.pause(t.ctx, "")
	t.ok("Pause", err)
	_, err = in.resume(t.ctx, "")
	t.ok("Resume", err)
	_, err = in.pause(t.ctx, "")
	t.ok("Pause", err)
	_, err = in.resume(t.ctx, "")
	t.ok("Resume", err)
	_, err = in.shutdown(t.ctx, 0, "")
	t.ok("Shutdown", err)
	return in
}

// life is what whole goes through.
var life = []troupev1.InstanceState{initializing, ready, busy, ready, busy, paused, ready, paused, ready, shuttingDown, terminated}

// tells demands that the transitions are those of whole above a version.
func (t *trial) tells(w *watched, after uint64) {
	from := uninitialized
	if after > 0 {
		from = life[after-1]
	}
	var got []string
	for i, tr := range w.transitions {
		got = append(got, stateName(tr.GetTo()))
		equal(t, "version of the next transition that WatchState tells", after+uint64(i)+1, tr.GetVersion())
		equal(t, "from of the transition to "+stateName(tr.GetTo()), from, tr.GetFrom())
		t.that(w.statuses[i].GetStateVersion() >= tr.GetVersion(), "state_version beside transition", tr.GetVersion(), w.statuses[i].GetStateVersion())
		from = tr.GetTo()
	}
	var want []string
	for _, s := range life[after:] {
		want = append(want, stateName(s))
	}
	equal(t, "transitions that WatchState tells", strings.Join(want, ", "), strings.Join(got, ", "))
}

func watchBegins(t *trial) {
	in := t.ready(spec{})
	for after := range uint64(3) {
		w, err := in.watch(t.ctx, after, int(2-after))
		t.ok("WatchState", err)
		equal(t, "state in the first item of WatchState", ready, w.first.GetState())
		equal(t, "state_version in the first item of WatchState", 2, w.first.GetStateVersion())
	}
}

func watchTellsAll(t *trial) {
	in := t.whole(nil)
	w, err := in.watch(t.ctx, 0, -1)
	t.ok("WatchState", err)
	t.tells(w, 0)
	var last time.Time
	for _, tr := range w.transitions {
		at := tr.GetTime().AsTime()
		t.that(tr.GetTime() != nil && !at.Before(last), "time of transition", "not before that of the one before", tr.GetTime())
		last = at
	}
}

func watchLive(t *trial) {
	var watchers []*pending[*watched]
	t.whole(func(in *instance) {
		for range 5 {
			w := async(t, func() (*watched, error) { return in.watch(t.ctx, 0, -1) })
			watchers = append(watchers, w)
		}
	})
	for _, p := range watchers {
		w, err := p.wait(t, "a watch of an instance that has ended", soon)
		t.ok("WatchState", err)
		t.tells(w, 0)
	}
}

func watchResumes(t *trial) {
	in := t.whole(nil)
	for after := range uint64(len(life) + 1) {
		w, err := in.watch(t.ctx, after, -1)
		t.ok("WatchState", err)
		t.tells(w, after)
	}
}

func watchEnds(t *trial) {
	in := t.ready(spec{})
	live := async(t, func() (*watched, error) { return in.watch(t.ctx, 0, -1) })
	_, err := in.shutdown(t.ctx, 0, "")
	t.ok("Shutdown", err)
	w, err := live.wait(t, "the end of a watch after TERMINATED", soon)
	t.ok("WatchState", err)
	later := async(t, func() (*watched, error) { return in.watch(t.ctx, 4, -1) })
	w2, err := later.wait(t, "the end of a watch that begins after TERMINATED", soon)
	t.ok("WatchState", err)
	t.that(w.ended && w2.ended, "both watches", "ended with OK", "open")
	t.that(len(w.transitions) > 0, "transitions that the watch tells", "4", "none")
	equal(t, "the last transition that a watch tells", terminated, w.transitions[len(w.transitions)-1].GetTo())
	equal(t, "transitions above that to TERMINATED", 0, len(w2.transitions))
}

// legal are the states that may follow a state (LC-2), beside SHUTTING_DOWN.
var legal = map[troupev1.InstanceState][]troupev1.InstanceState{
	uninitialized: {initializing},
	initializing:  {ready},
	ready:         {busy, paused},
	busy:          {ready, paused},
	paused:        {ready},
	shuttingDown:  {terminated},
}

func watchLegal(t *trial) {
	unused := t.make(spec{})
	_, err := unused.shutdown(t.ctx, 0, "")
	t.ok("Shutdown", err)
	failing := t.make(spec{startup: fails})
	_, err = failing.startup(t.ctx)
	t.failed("Startup of one that fails", err)
	failing.becomes(terminated, soon)
	drained := t.ready(spec{})
	s := drained.begin("sleep 200ms").isAdmitted(t)
	_, err = drained.shutdown(t.ctx, 5*time.Second, "")
	t.ok("Shutdown", err)
	s.end(t, soon)
	for _, in := range []*instance{unused, failing, drained, t.whole(nil)} {
		for _, tr := range in.history() {
			ok := slices.Contains(legal[tr.GetFrom()], tr.GetTo()) ||
				tr.GetTo() == shuttingDown && tr.GetFrom() != shuttingDown && tr.GetFrom() != terminated
			t.that(ok, "a transition", "one that the table of states has", stateName(tr.GetFrom())+" to "+stateName(tr.GetTo()))
		}
	}
}

func watchSaysWhy(t *trial) {
	in := t.make(spec{})
	const started, halted, gone = "0af7651916cd43dd8448eb211c80319a", "0af7651916cd43dd8448eb211c80319b", "0af7651916cd43dd8448eb211c80319d"
	_, err := in.startup(t.traced(started))
	t.ok("Startup", err)
	req := in.request("say hello")
	in.send(t.traced(req.GetTraceId()), req, ledger{}).succeeds(t, soon)
	_, err = in.pause(t.traced(halted), "a new model")
	t.ok("Pause", err)
	_, err = in.shutdown(t.traced(gone), 0, "a new node")
	t.ok("Shutdown", err)

	history := in.history()
	equal(t, "transitions", 7, len(history))
	for i, want := range []struct{ reason, trace string }{
		{"", started}, {"", started}, {"", req.GetTraceId()}, {"", ""}, {"a new model", halted}, {"a new node", gone}, {"a new node", gone},
	} {
		tr := history[i]
		what := " of the transition to " + stateName(tr.GetTo())
		if want.reason != "" {
			equal(t, "reason"+what, want.reason, tr.GetReason())
		}
		if want.trace != "" {
			equal(t, "trace_id"+what, want.trace, tr.GetTraceId())
		}
	}
}

func watchFuture(t *trial) {
	in := t.ready(spec{})
	ctx, cancel := context.WithTimeout(t.ctx, soon)
	defer cancel()
	_, err := in.watch(ctx, 3, 1)
	t.refused("WatchState with after_version 3 at version 2", err, failure.UserInvalidInput)
}

func watchRemembers(t *trial) {
	in := t.ready(spec{})
	for range 520 {
		_, err := in.pause(t.ctx, "")
		t.ok("Pause", err)
		_, err = in.resume(t.ctx, "")
		t.ok("Resume", err)
	}
	version := in.status().GetStateVersion()
	w, err := in.watch(t.ctx, version-1024, 1024)
	t.ok("WatchState of the latest 1,024 transitions", err)
	for i, tr := range w.transitions {
		equal(t, "version of the next transition", version-1024+uint64(i)+1, tr.GetVersion())
	}
	ctx, cancel := context.WithTimeout(t.ctx, soon)
	defer cancel()
	_, err = in.watch(ctx, 0, int(version)+1)
	t.refused("WatchState of all transitions", err, failure.ResourceQuota)
}
