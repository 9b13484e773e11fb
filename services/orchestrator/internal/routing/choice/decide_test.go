package choice

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

func newAgentInput(of ...Candidate) Input {
	for i := range of {
		of[i].Name, of[i].Type = of[i].ID, Agent
		of[i].Available = of[i].Availability == selection.Available
	}
	return Input{Type: Agent, Candidates: of}
}

// The candidate with the most needed capabilities is chosen. Without needs, the first available one is chosen.
// Req: OC-17
func TestDecide_ByCapability(t *testing.T) {
	in := newAgentInput(
		Candidate{ID: "a", Capabilities: []string{"tax"}}, Candidate{ID: "b", Capabilities: []string{"law", "tax"}},
		Candidate{ID: "c", Capabilities: []string{"law", "more", "tax"}}, Candidate{ID: "d"},
	)
	in.Needs = []string{"tax", "law"}
	d := Decide(in)
	require.Equal(t, selection.Capability, d.Strategy, "the default (OC-16)")
	require.Equal(t, "b", d.Target, "of equals the first")
	require.Equal(t, []string{"c", "a"}, d.Alternatives)
	require.Equal(t, []Rejected{{"d", selection.Unfit}}, d.Rejected)
	require.InDelta(t, 1, d.Confidence, 0)
	require.Equal(t, "b has all that is needed: tax, law; d has nothing of what the step needs", d.Reason)

	in.Candidates[1].Available, in.Candidates[1].Availability = false, selection.Paused
	in.Candidates[2].Available, in.Candidates[2].Availability = false, selection.Absent
	d = Decide(in)
	require.Equal(t, "a", d.Target)
	require.True(t, d.IsStandIn)
	require.InDelta(t, 0.5, d.Confidence, 0, "one of the two that are required")
	require.Equal(t,
		"a has 1 of the 2 that are needed: tax, law, and none with more is available; b is paused, c is not there, d has nothing of what the step needs", d.Reason)

	in.Needs = nil
	d = Decide(in)
	require.Equal(t, "a", d.Target)
	require.InDelta(t, 0.5, d.Confidence, 0)
	in.Candidates[0].Available, in.Candidates[0].Availability = false, selection.Draining
	require.Equal(t, "d", Decide(in).Target, "the first that is available")
}

// In N×k decisions, each of N candidates is chosen k times, even while other candidates are unavailable.
// Req: OC-17
func TestDecide_RoundRobin(t *testing.T) {
	in := newAgentInput(Candidate{ID: "a"}, Candidate{ID: "b", Availability: selection.NotReady}, Candidate{ID: "c"}, Candidate{ID: "d"})
	in.Strategy = selection.RoundRobin
	had := map[string]int{}
	for range 30 {
		had[Decide(in).Target]++
		in.Counter++
	}
	require.Equal(t, map[string]int{"a": 10, "c": 10, "d": 10}, had)
	require.Equal(t, "a is next in turn of 3; b is not ready", Decide(in).Reason)
}

func TestDecide_ByLoad(t *testing.T) {
	in := newAgentInput(Candidate{ID: "a", Load: 0.5}, Candidate{ID: "b", Load: 0.25}, Candidate{ID: "c", Load: 0.25}, Candidate{
		ID:           "d",
		Availability: selection.BreakerOpen,
	})
	in.Strategy = selection.LoadBalanced
	had := map[string]int{}
	for range 30 {
		d := Decide(in)
		had[d.Target]++
		require.False(t, d.IsStandIn)
		require.InDelta(t, selection.InformedConfidence, d.Confidence, 0)
		in.Counter++
	}
	require.Len(t, had, 2, "%v", had)
	require.Zero(t, had["a"])
	in.Counter = 1
	require.Equal(t, "b has 25 % of its slots in use, the least of 3; d failed its last steps", Decide(in).Reason)
}

func TestDecide_ByPriority(t *testing.T) {
	in := newAgentInput(Candidate{ID: "a"}, Candidate{ID: "b", Priority: 10}, Candidate{ID: "c", Priority: -1}, Candidate{ID: "d"})
	in.Strategy = selection.Priority
	d := Decide(in)
	require.Equal(t, []string{"b", "a", "d", "c"}, d.Chosen())
	require.InDelta(t, 1, d.Confidence, 0)
	require.Equal(t, "b has priority 10, the highest", d.Reason)
	in.Candidates[1].Available, in.Candidates[1].Availability = false, selection.Paused
	d = Decide(in)
	require.Equal(t, "a", d.Target)
	require.True(t, d.IsStandIn)
	require.InDelta(t, 0.5, d.Confidence, 0)
}

func TestDecide_ByName(t *testing.T) {
	in := newAgentInput(Candidate{ID: "a"}, Candidate{ID: "b"})
	in.Strategy, in.Names = selection.Manual, []string{"b"}
	d := Decide(in)
	require.Equal(t, []string{"b"}, d.Chosen())
	require.Equal(t, "the workflow names b", d.Reason)
	in.Candidates[1].Available, in.Candidates[1].Availability = false, selection.Paused
	d = Decide(in)
	require.Empty(t, d.Target, "a named candidate has no stand-in")
	require.Equal(t, "no agent can be chosen: b is paused", d.Reason)
}

// Every tool with a needed capability is allowed, best match first.
func TestDecide_AmongTools(t *testing.T) {
	in := Input{Type: Tool, Candidates: []Candidate{
		{ID: "clock", Available: true},
		{ID: "fetch", Capabilities: []string{"web"}, Available: true},
		{ID: "search", Capabilities: []string{"docs", "web"}, Available: true},
	}}
	in.Needs = []string{"docs", "web"}
	d := Decide(in)
	require.Equal(t, []string{"search", "fetch"}, d.Chosen())
	require.Equal(t, "search has all that is needed: docs, web; 1 more have some of it; clock has nothing of what the step needs", d.Reason)

	in.Strategy, in.Names = selection.Manual, []string{"search", "nothing", "clock"}
	d = Decide(in)
	require.Equal(t, []string{"search", "clock"}, d.Chosen(), "in the order of the names")
	require.Equal(t, []Rejected{{"fetch", selection.NotNamed}, {"nothing", selection.Absent}}, d.Rejected)
	require.Equal(t, "the workflow names search, clock; nothing is not there", d.Reason)

	in.Strategy, in.Needs = selection.Capability, []string{"mail"}
	require.Empty(t, Decide(in).Chosen())
	require.Equal(t, "there is no tool to choose", Decide(Input{Type: Tool}).Reason)
}

// The candidate of an agent has the combined capabilities and the average load of its instances.
func TestCombineInstances_CombinesTheInstancesOfAnAgent(t *testing.T) {
	instance := func(id string, busy int32, why selection.Availability, can ...string) Candidate {
		return CandidateFromInstance(selection.Candidate{ID: id, Version: "v1", InFlight: busy, Capacity: 4, Capabilities: can}, why)
	}
	require.Equal(t, Candidate{
		ID: "a-1", Name: "a-1", Type: Worker, Capabilities: []string{"gpu"}, Metadata: map[string]string{"version": "v1", "incarnation": "0"},
		Available: true, Load: 0.5,
	}, instance("a-1", 2, selection.Available, "gpu"))
	require.Equal(t, Candidate{
		ID: "a", Name: "a", Type: Agent, Capabilities: []string{"gpu", "maps"}, Metadata: map[string]string{"instances": "2"}, Available: true, Load: 0.75,
	}, CombineInstances("a", []Candidate{
		instance("a-1", 2, selection.Available, "gpu"), instance("a-2", 9, selection.Available, "gpu", "maps"), instance("a-3", 0, selection.BreakerOpen,
			"tax"),
	}))
	require.Equal(t, Candidate{
		ID: "a", Name: "a", Type: Agent, Capabilities: []string{"tax"}, Metadata: map[string]string{"instances": "0"},
		Availability: selection.Paused,
	},
		CombineInstances("a", []Candidate{instance("a-3", 0, selection.Paused, "tax"), instance("a-4", 0, selection.Draining)}))
	require.Equal(t, selection.Absent, CombineInstances("a", nil).Availability)
}
