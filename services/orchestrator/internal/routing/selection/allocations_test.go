package selection

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// newBusyInput returns n instances. Every second one is busy, and every tenth one is full.
func newBusyInput(strategy Strategy, n int) Input {
	all := make([]Candidate, n)
	for i := range all {
		all[i] = Candidate{ID: fmt.Sprintf("research-7d9f8b6c5-%05d", i), Version: []string{"v1", "v2"}[i%2], Incarnation: int64(i), Capacity: 4}
		switch {
		case i%10 == 0:
			all[i].InFlight = 4
		case i%2 == 0:
			all[i].InFlight = 1
		}
	}
	if strategy == Capability {
		for i := range all {
			all[i].Capabilities = []string{"gpu"}
		}
	}
	in := newInput(strategy, all)
	switch strategy {
	case Weighted:
		in.Policy.Weights = map[string]int{"v2": 10}
	case Priority:
		in.Policy.Priorities = map[string]int{"v2": 10}
	case Manual:
		in.Policy.Instance, in.Policy.Fallback = all[n-1].ID, RoundRobin
	case Capability:
		in.Policy.Needs = []string{"gpu", "maps"}
	default:
	}
	return in
}

// A decision among a thousand instances needs no more allocations than one among a hundred.
func TestDecide_AllocationsDoNotGrowWithCandidates(t *testing.T) {
	for _, strategy := range Strategies() {
		few, many := newBusyInput(strategy, 100), newBusyInput(strategy, 1000)
		decide := func(in Input) float64 { return testing.AllocsPerRun(100, func() { in.Counter++; Decide(in) }) }
		require.LessOrEqual(t, decide(many), decide(few)+2, strategy) // they are the counts of the omitted candidates
	}
}

// newDistinctInput returns n instances, each with a different capability.
func newDistinctInput(n int) Input {
	in := newBusyInput(Capability, n)
	for i := range in.Candidates {
		in.Candidates[i].Capabilities = []string{fmt.Sprintf("solo-%05d", i), "gpu"}
	}
	in.Sizes = PrepareCandidates(in.Candidates)
	return in
}

func BenchmarkDecide(b *testing.B) {
	for _, strategy := range Strategies() {
		for _, n := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", strategy, n), func(b *testing.B) {
				in := newBusyInput(strategy, n)
				b.ReportAllocs()
				for b.Loop() {
					in.Counter++
					Decide(in)
				}
			})
		}
	}
}

// All instances have different capabilities, so each set must be compared.
func BenchmarkDecide_AmongDistinctCapabilities(b *testing.B) {
	in := newDistinctInput(1000)
	b.ReportAllocs()
	for b.Loop() {
		in.Counter++
		Decide(in)
	}
}

func BenchmarkPrepareCandidates(b *testing.B) {
	for name, in := range map[string]Input{"alike": newBusyInput(Capability, 1000), "soloists": newDistinctInput(1000)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				PrepareCandidates(in.Candidates)
			}
		})
	}
}
