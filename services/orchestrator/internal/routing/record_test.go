package routing

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/choice"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// storedInput returns the input of a decision as the record stores it.
func storedInput(t *testing.T, r *troupev1.RoutingDecision) choice.Input {
	t.Helper()
	from := r.GetInput()
	in := choice.Input{
		Request: selection.Request{Task: from.GetTask(), Needs: from.GetConstraints()},
		Type:    choice.Tool, Names: from.GetNames(), Counter: from.GetCounter(),
	}
	for s, record := range strategies {
		if record == r.GetStrategy() {
			in.Strategy = s
		}
	}
	for _, c := range from.GetCandidates() {
		read := choice.Candidate{
			ID: c.GetId(), Name: c.GetName(), Type: choice.CandidateType(c.GetType()), Capabilities: c.GetCapabilities(), Metadata: c.GetMetadata(),
			Available: c.GetAvailable(), Load: c.GetLoad(), Priority: int(c.GetPriority()),
		}
		if !read.Available {
			require.NoError(t, read.Availability.UnmarshalText([]byte(c.GetWhy())))
		}
		in.Type = read.Type
		in.Candidates = append(in.Candidates, read)
	}
	return in
}

// randomInput returns a random input of a choice.
func randomInput(r *rand.Rand) choice.Input {
	some := func(of ...string) (few []string) {
		for _, word := range of {
			if r.IntN(2) == 0 {
				few = append(few, word)
			}
		}
		return few
	}
	in := choice.Input{
		Request: selection.Request{
			TraceID: "t", Profile: "p", Goal: "g", Task: "s", Metadata: map[string]string{"team": "blue"}, Parent: "u",
			Needs: some("law", "maps", "tax"),
		},
		Type: []choice.CandidateType{choice.Agent, choice.Tool}[r.IntN(2)], Counter: r.Uint64() >> r.IntN(64), Names: some("c-0", "c-1", "c-7"),
		Strategy: []selection.Strategy{"", selection.Capability, selection.RoundRobin, selection.LoadBalanced, selection.Priority, selection.Manual}[r.IntN(6)],
	}
	for i := range 1 + r.IntN(12) {
		c := choice.Candidate{
			ID: fmt.Sprint("c-", i), Name: fmt.Sprint("n-", r.IntN(9)), Type: in.Type, Capabilities: some("law", "maps", "tax"), Available: r.IntN(3) > 0,
			Load: float64(r.IntN(5)) / 4, Priority: r.IntN(5) - 2, Metadata: map[string]string{"instances": fmt.Sprint(r.IntN(3))},
		}
		if !c.Available {
			c.Availability = []selection.Availability{selection.Paused, selection.Absent, selection.BreakerOpen}[r.IntN(3)]
		}
		in.Candidates = append(in.Candidates, c)
	}
	return in
}

// Replaying a stored choice makes the same choice. Each record names the target, the reason, the alternatives and
// the rejected candidates (contract OC-12, OC-15, OC-18, C-15).
func TestRecordChoice_ReplayMakesTheSameChoice(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	storedWithTheTurn := cmpopts.IgnoreFields(selection.Request{}, "TraceID", "Profile", "Goal", "Metadata", "Parent")
	withoutTarget := 0
	for range 10_000 {
		in := randomInput(r)
		d := choice.Decide(in)
		require.Empty(t, cmp.Diff(d, choice.Decide(in)), "the same input")
		stored, err := proto.Marshal(RecordChoice(d, 3, 0))
		require.NoError(t, err)
		record := &troupev1.RoutingDecision{}
		require.NoError(t, proto.Unmarshal(stored, record))
		require.Empty(t, cmp.Diff(d, choice.Decide(storedInput(t, record)), cmpopts.EquateEmpty(), storedWithTheTurn), "the record")

		require.Greater(t, len(d.Reason), 10)
		require.True(t, d.Confidence >= 0 && d.Confidence <= 1)
		require.NotEqual(t, record.GetTarget(), record.GetFallback())
		require.LessOrEqual(t, len(d.Rejected), 8)
		for _, id := range d.Chosen() {
			require.True(t, in.FindCandidate(id).Available)
			require.False(t, slices.ContainsFunc(d.Rejected, func(out choice.Rejected) bool { return out.ID == id }))
		}
		if d.Target == "" {
			withoutTarget++
			require.Equal(t, "none", record.GetTarget())
			require.Zero(t, d.Confidence)
		}
	}
	require.Less(t, withoutTarget, 5_000, "otherwise the test proves nothing")
}
