package selection

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func newCapabilityInput(of ...[]string) Input {
	all := readyCandidates(len(of))
	for i := range all {
		all[i].Capabilities = of[i]
	}
	in := newInput(Capability, all)
	in.Policy.Needs = []string{"gpu", "maps"}
	return in
}

// The candidate with more of the needed capabilities comes first. Between equals, the choice is always the same.
// Req: OC-17
func TestCapability_PrefersTheMostNeededCapabilities(t *testing.T) {
	in := newCapabilityInput(nil, []string{"gpu"}, []string{"audio", "maps"}, []string{"gpu", "maps", "more"}, []string{"gpu", "maps"})
	require.Equal(t, map[string]int{"b-3": 100}, countTargets(in, 100), "ties are stable")
	d := Decide(in)
	require.Equal(t, "b-3 has all that the step needs: gpu, maps; 1 has nothing of what the step needs", d.Reason)
	require.InDelta(t, 1, d.Confidence, 0)
	require.Equal(t, []string{"b-4", "b-1", "b-2"}, d.Alternatives)
	require.Equal(t, []Rejected{{ID: "b-0", Availability: Unfit}}, d.Rejected)

	in.Candidates[3].InFlight, in.Candidates[4].InFlight = 4, 4
	d = Decide(in)
	require.Equal(t, "b-1", d.Target)
	require.Equal(t, StandIn, d.Type)
	require.InDelta(t, 0.5, d.Confidence, 0, "one of the two that are required")
	require.Equal(t, "b-1 has 1 of the 2 that the step needs: gpu, maps, and none with more can take it; 2 are full, 1 has nothing of what the step needs",
		d.Reason)

	in.Policy.Needs = nil
	require.Equal(t, map[string]int{"b-0": 10}, countTargets(in, 10))
	d = Decide(in)
	require.Equal(t, "b-0", d.Target, "the first that is available")
	require.InDelta(t, 0.5, d.Confidence, 0)
	require.Equal(t, "b-0 is the first that can take it, and the step needs nothing; 2 are full", d.Reason)
}

func TestCapability_NoInstanceFits(t *testing.T) {
	d := Decide(newCapabilityInput(nil, []string{"audio"}))
	require.Empty(t, d.Target)
	require.False(t, d.MaySucceedLater, "waiting for them is useless")
	require.Equal(t, "no instance can take it: 2 have nothing of what the step needs", d.Reason)
}

// The decision is the same whether or not the sets of capabilities have numbers.
func TestCapability_DistinguishesManySets(t *testing.T) {
	var sets [][]string
	for i := range 3 * maxNumberedValues {
		sets = append(sets, []string{fmt.Sprint("solo-", i)}, []string{fmt.Sprint("solo-", i), "gpu"})
	}
	in := newCapabilityInput(append(sets, []string{"gpu", "maps"}, []string{"maps", "gpu"})...)
	require.Zero(t, in.Candidates[len(sets)].capabilitySet)
	d := Decide(in)
	require.Equal(t, fmt.Sprint("b-", len(sets)), d.Target)
	require.Equal(t, []string{fmt.Sprint("b-", len(sets)+1), "b-1", "b-3"}, d.Alternatives)
	require.Equal(t, 3*maxNumberedValues, d.Input.Omitted[Unfit]+maxRejected)
	require.Equal(t, d, Decide(decodeJSON[Input](t, encodeJSON(t, in))))
	require.Equal(t, d, Decide(d.Input))
}
