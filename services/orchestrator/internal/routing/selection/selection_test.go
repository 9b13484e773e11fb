package selection

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// readyCandidates returns n candidates with 4 slots each. Their ids are b-0, b-1 and so on.
func readyCandidates(n int) []Candidate {
	all := make([]Candidate, n)
	for i := range all {
		all[i] = Candidate{ID: "b-" + strconv.Itoa(i), Version: "v1", Capacity: 4}
	}
	return all
}

func newInput(strategy Strategy, candidates []Candidate) Input {
	return Input{Policy: Policy{Strategy: strategy}, Session: "s", Candidates: candidates, Sizes: PrepareCandidates(candidates)}
}

// countTargets counts how often each candidate is the target in n successive decisions. The steps take no time.
func countTargets(in Input, n int) map[string]int {
	count := map[string]int{}
	for range n {
		count[Decide(in).Target]++
		in.Counter++
	}
	return count
}

func TestRoundRobin_SpreadsEvenly(t *testing.T) {
	require.Equal(t, map[string]int{"b-0": 100, "b-1": 100, "b-2": 100}, countTargets(newInput(RoundRobin, readyCandidates(3)), 300))
	d := Decide(newInput("", readyCandidates(3)))
	require.Equal(t, RoundRobin, d.Strategy, "the default")
	require.Equal(t, "b-0 is next in turn of 3", d.Reason)
	require.Equal(t, []string{"b-1", "b-2"}, d.Alternatives)
}

// Candidates of later classes do not affect the round robin among earlier classes.
func TestRoundRobin_IgnoresLaterClasses(t *testing.T) {
	all := readyCandidates(5)
	all[3].Class, all[4].Class = Unregistered, Unstarted
	require.Equal(t, map[string]int{"b-0": 10, "b-1": 10, "b-2": 10}, countTargets(newInput(RoundRobin, all), 30))
	for i := range 3 {
		all[i].InFlight = 4
	}
	d := Decide(newInput(RoundRobin, all))
	require.Equal(t, "b-3", d.Target)
	require.Equal(t, "b-3 is next in turn of 2, though its registration is missing; 3 are full", d.Reason)
	require.Equal(t, []string{"b-4"}, d.Alternatives)
}

func TestLoadBalanced_TakesTheLessBusyOfTwo(t *testing.T) {
	all := readyCandidates(2)
	all[0].InFlight, all[1].InFlight = 2, 1
	d := Decide(newInput(LoadBalanced, all))
	require.Equal(t, "b-1", d.Target)
	require.Equal(t, "b-0", d.Fallback)
	require.Equal(t, "b-1 has 1 of 4 slots in use, the fewest of two asked", d.Reason)
	require.Equal(t, InformedConfidence, d.Confidence)

	all[1].Capacity = 1 // full now, as b-0 is not
	d = Decide(newInput(LoadBalanced, all))
	require.Equal(t, "b-0", d.Target)
	require.Equal(t, "b-0 is the only one that can take it; 1 is full", d.Reason)
	require.Equal(t, CertainConfidence, d.Confidence)
}

// The less busy of two random candidates gets the step. So the busiest of all candidates never gets one.
func TestLoadBalanced_UsesAllButTheBusiest(t *testing.T) {
	all := readyCandidates(8)
	all[7].InFlight = 3
	count := countTargets(newInput(LoadBalanced, all), 7000)
	require.Len(t, count, 7)
	for id, n := range count {
		require.InDelta(t, 1000, n, 150, id)
	}
}

// When an instance disappears, only its own sessions move to other instances.
func TestSticky_MovesOnlyTheSessionsOfALostInstance(t *testing.T) {
	all := readyCandidates(8)
	fewer := slices.Delete(slices.Clone(all), 3, 4)
	homes := map[string]int{}
	for i := range 8000 {
		before, after := newInput(Sticky, all), newInput(Sticky, fewer)
		before.Session, after.Session, after.Counter = fmt.Sprint("session-", i), fmt.Sprint("session-", i), uint64(i)
		home := Decide(before).Target
		homes[home]++
		if moved := Decide(after).Target; home != "b-3" {
			require.Equal(t, home, moved)
		}
	}
	for id, n := range homes {
		require.InDelta(t, 1000, n, 150, id)
	}
}

func TestSticky_ReasonNamesTheReplacedInstance(t *testing.T) {
	all := readyCandidates(3)
	in := newInput(Sticky, all)
	d := Decide(in)
	require.Equal(t, "the session stays with "+d.Target, d.Reason)
	require.Equal(t, Selection, d.Type)
	home, next := d.Target, d.Fallback
	in.Excluded = map[string]Rejected{home: {ID: home, Availability: Lost}}
	d = Decide(in)
	require.Equal(t, next, d.Target)
	require.Equal(t, StandIn, d.Type)
	require.Equal(t, GuessedConfidence, d.Confidence)
	require.Equal(t, fmt.Sprintf("%s stands in for %s, the instance of the session, which lost it before; 1 lost it before", next, home), d.Reason)
}

func versions(names ...string) []Candidate {
	all := readyCandidates(len(names))
	for i := range all {
		all[i].Version = names[i]
	}
	return all
}

// A canary version gets exactly its share of every hundred steps.
func TestWeighted_GivesEachVersionItsShare(t *testing.T) {
	count := func(weights map[string]int, n int, names ...string) map[string]int {
		all := versions(names...)
		in := newInput(Weighted, all)
		in.Policy.Weights = weights
		got := map[string]int{}
		for id, n := range countTargets(in, n) {
			if id == "" {
				got["nobody"] += n
				continue
			}
			i := slices.IndexFunc(all, func(c Candidate) bool { return c.ID == id })
			got[names[i]] += n
		}
		return got
	}
	canary := map[string]int{"v2": 10}
	require.Equal(t, map[string]int{"v1": 900, "v2": 100}, count(canary, 1000, "v1", "v1", "v1", "v2"))
	require.Less(t, count(canary, 20, "v1", "v2")["v2"], 4, "well mixed")
	require.Equal(t, map[string]int{"v1": 100}, count(canary, 100, "v1", "v1"), "no canary is there")
	require.Equal(t, map[string]int{"v2": 100}, count(canary, 100, "v2"), "only the canary is there")
	require.Equal(t, map[string]int{"v1": 60, "v2": 20}, count(map[string]int{"v1": 60, "v2": 20}, 80, "v1", "v2"))
	require.Equal(t, map[string]int{"v1": 100}, count(map[string]int{"v2": 0}, 100, "v1", "v2"))
	require.Equal(t, map[string]int{"nobody": 100}, count(map[string]int{"v2": 0}, 100, "v2"), "none may have it")
	require.Equal(t, map[string]int{"v3": 100}, count(map[string]int{"v1": 50, "v2": 50}, 100, "v3"), "better than no instance")
}

func TestWeighted_UsesAnotherVersionWhenOneIsMissing(t *testing.T) {
	all := versions("v1", "v2")
	in := newInput(Weighted, all)
	in.Policy.Weights = map[string]int{"v2": 10}
	d := Decide(in)
	require.Equal(t, "b-1", d.Target)
	require.Equal(t, "this step belongs to version v2 (10 of 100), and b-1 has 0 of 4 slots in use", d.Reason)
	all[1].InFlight = 4
	d = Decide(in)
	require.Equal(t, "b-0", d.Target)
	require.Equal(t, StandIn, d.Type)
	require.Equal(t, "b-0 stands in: this step belongs to version v2 (10 of 100), and none of its instances can take it; 1 is full", d.Reason)
}

func TestPriority_UsesLowerPrioritiesOnlyWhenNeeded(t *testing.T) {
	all := versions("v1", "v2", "v2", "v3")
	in := newInput(Priority, all)
	in.Policy.Priorities = map[string]int{"v2": 10, "v3": -1}
	all[1].InFlight = 2
	d := Decide(in)
	require.Equal(t, "b-2", d.Target, "the less busy of two with the same priority")
	require.Equal(t, []string{"b-1", "b-0", "b-3"}, d.Alternatives)
	require.Equal(t, "b-2 has priority 10, the highest", d.Reason)
	all[1].InFlight, all[2].InFlight = 4, 4
	d = Decide(in)
	require.Equal(t, "b-0", d.Target)
	require.Equal(t, StandIn, d.Type)
	require.Equal(t, "b-0 has priority 0, and none with a higher priority can take the step; 2 are full", d.Reason)
}

func TestManual_FallsBackOnlyAsDeclared(t *testing.T) {
	all := readyCandidates(3)
	in := newInput(Manual, all)
	in.Policy.Instance = "b-2"
	d := Decide(in)
	require.Equal(t, "b-2", d.Target)
	require.Equal(t, "the workflow names b-2", d.Reason)
	require.Empty(t, d.Fallback)
	require.Equal(t, CertainConfidence, d.Confidence)

	all[2].InFlight = 4
	d = Decide(in)
	require.Empty(t, d.Target)
	require.True(t, d.MaySucceedLater)
	require.Equal(t, "the workflow names b-2, which is full", d.Reason)

	in.Policy.Fallback = RoundRobin
	d = Decide(in)
	require.Equal(t, "b-0", d.Target)
	require.Equal(t, StandIn, d.Type)
	require.Equal(t, "the workflow names b-2, which is full; b-0 is next in turn of 2; 1 is full", d.Reason)

	in.Candidates, in.Sizes = nil, ClassSizes{}
	in.Withheld = []Rejected{{ID: "b-1", Availability: Draining}, {ID: "b-2", Availability: Paused}}
	d = Decide(in)
	require.Empty(t, d.Target)
	require.False(t, d.MaySucceedLater)
	require.Equal(t, "no instance can take it: 1 is paused, 1 drains", d.Reason)
	in.Policy.Fallback = ""
	require.Equal(t, "the workflow names b-2, which is paused", Decide(in).Reason)
	in.Policy.Instance = "b-7"
	require.Equal(t, "the workflow names b-7, which is not known", Decide(in).Reason)
}

// A candidate that cannot get the step is excluded before the choice, and the reason names it.
func TestDecide_ExcludesCandidatesWithAReason(t *testing.T) {
	all := readyCandidates(4)
	all[0].InFlight, all[1].Incarnation, all[2].Incarnation = 4, 7, 8
	in := newInput(RoundRobin, all)
	in.Excluded = map[string]Rejected{
		"b-1": {ID: "b-1", Incarnation: 7, Availability: RejectedStep, Detail: "it drains"},
		"b-2": {ID: "b-2", Incarnation: 7, Availability: Lost}, // it has restarted since
	}
	in.Withheld = []Rejected{{ID: "b-9", Availability: Paused}}
	d := Decide(in)
	require.Equal(t, "b-2", d.Target)
	require.Equal(t, []Rejected{
		{ID: "b-0", Availability: Full}, {ID: "b-1", Incarnation: 7, Availability: RejectedStep, Detail: "it drains"}, {ID: "b-9", Availability: Paused},
	}, d.Rejected)
	require.Equal(t, "b-2 is next in turn of 2; 1 is full, 1 refused it, 1 is paused", d.Reason)
	require.Equal(t, "no instance is known", Decide(Input{}).Reason)
}

// Every orchestrator sends a session to the same instance. The hash must not change between versions of the
// program.
func TestHash_IsTheSameInEveryVersion(t *testing.T) {
	require.Equal(t, uint64(0x6bdcf2a1c9048eba), hash("session-1"))
}
