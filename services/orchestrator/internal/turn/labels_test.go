package turn

import (
	"context"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

var blue = Labels{Profile: "fast", Metadata: map[string]string{"team": "blue", "tier": "gold"}}

func labelled(req Request, l Labels) Request {
	req.Labels = l
	return req
}

// brings checks the labels of all steps from a number on.
func (r *rig) brings(t *testing.T, from int, l Labels, requests ...string) {
	t.Helper()
	steps := r.steps()[from:]
	require.Len(t, steps, len(requests))
	for i, s := range steps {
		require.Equal(t, l.Profile, s.GetProfile())
		require.Empty(t, cmp.Diff(maps.Clone(l.Metadata), s.GetMetadata()))
		require.Equal(t, requests[i], s.GetRequestId())
	}
}

// Every step has them, also one that is begun again, and those of an owner that took the turn over.
func TestTurn_ItsLabelsOutliveWorkersAndOrchestrators(t *testing.T) {
	rig := newRig(t)
	rig.join("research", 1)
	rig.on("research", func(s *step) error { rig.on("research", nil); return s.vanish() })
	runner := rig.runner(t, "one")
	require.Equal(t, completed, resultOf(collect(t, runner, labelled(ask("s1", "r1"), blue))).GetOutcome())
	rig.brings(t, 0, blue, "r1", "r1", "r1", "r1")
	collect(t, runner, ask("s1", "r2"))
	rig.brings(t, 4, Labels{}, "r2", "r2", "r2")

	_, ref, _ := rig.lost(t, labelled(ask("s2", "r3"), blue))
	second := rig.runner(t, "two")
	second.adopt(t.Context(), ref)
	require.Equal(t, completed, resultOf(watched(t, second, ref, 0)).GetOutcome())
	rig.brings(t, 7, blue, "r3", "r3", "r3", "r3")
}

// Who answers need not say again how the turn is to be handled.
func TestTurn_AnswersGoOnWithItsLabels(t *testing.T) {
	for name, c := range map[string]struct{ said, want Labels }{
		"none":  {Labels{}, blue},
		"other": {Labels{Profile: "slow"}, Labels{Profile: "slow", Metadata: blue.Metadata}},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t)
			runner := rig.runner(t, "one")
			rig.waits(mail())
			collect(t, runner, labelled(ask("s1", "r1"), blue))
			rig.on("research", nil)
			answer := reply("r2", execution.Answer{ID: "1-2-2", Verdict: execution.Approve})
			before := len(rig.steps())
			require.Equal(t, completed, resultOf(collect(t, runner, labelled(answer, c.said))).GetOutcome())
			rig.brings(t, before, c.want, "r2", "r2")
		})
	}
}

// Other labels are another request.
func TestRequest_LabelsAreAPartOfWhatIsAsked(t *testing.T) {
	plain := ask("s1", "r1")
	require.Equal(t, plain.fingerprint(), labelled(plain, Labels{Metadata: map[string]string{}}).fingerprint())
	require.Equal(t, labelled(plain, blue).fingerprint(), labelled(plain, Labels{Profile: blue.Profile, Metadata: maps.Clone(blue.Metadata)}).fingerprint())
	rig := newRig(t)
	runner := rig.runner(t, "one")
	events := collect(t, runner, labelled(plain, blue))
	_, err := runner.begin(t.Context(), plain)
	require.True(t, failure.Is(err, failure.KeyReused), "%v", err)

	ref := trace.Ref{Trace: events[0].GetTraceId()}
	stored, err := runner.Traces.Store().Load(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, blue, readLabels(stored.Terms.Labels))
	require.Equal(t, Labels{}, readLabels("{"))
	require.Equal(t, session.Ready, rig.state(t, "s1"))
}

// Nor need who sends the answers again, because nobody said whether they were taken.
func TestTurn_AnswersWhoseBeginningWasMissedGoOnWithItsLabels(t *testing.T) {
	rig := newRig(t)
	runner := rig.runner(t, "one")
	rig.waits(mail())
	collect(t, runner, labelled(ask("s1", "r1"), blue))
	before := len(rig.steps())
	runner.Memory = &forgetful{Memory: runner.Memory}
	for _, err := range runner.Orchestrate(t.Context(), reply("r2", approve("1-2-2"))) {
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.Equal(t, completed, resultOf(collect(t, runner, reply("r2", approve("1-2-2")))).GetOutcome())
	rig.brings(t, before, blue, "r2", "r2")
}
