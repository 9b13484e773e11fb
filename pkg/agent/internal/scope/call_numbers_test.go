package scope_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/pkg/agent/internal/scope"
)

func TestCallNumbers_LanesTakeNumbersInTurns(t *testing.T) {
	calls := &scope.CallNumbers{}
	require.Equal(t, 1, calls.Next())
	left, right, unused := calls.NewLane(0, 3), calls.NewLane(1, 3), calls.NewLane(2, 3)
	require.Equal(t, []int{2, 5}, []int{left.Next(), left.Next()})
	require.Equal(t, 3, right.Next())
	require.Equal(t, 1, unused.Join(), "a lane without a call ends where it began")
	calls.JoinAll(left, right, unused)
	require.Equal(t, 6, calls.Next(), "numbers that no lane took are left out")
}

func TestCallNumbers_SkipLeavesNumbersOut(t *testing.T) {
	calls := &scope.CallNumbers{}
	calls.Skip(4)
	calls.Skip(2)
	require.Equal(t, 5, calls.Next())
}

func TestCallNumbers_LaneCountIncludesTheParents(t *testing.T) {
	var none *scope.CallNumbers
	require.Equal(t, 1, none.LaneCount())
	calls := &scope.CallNumbers{}
	require.Equal(t, 1, calls.LaneCount())
	require.Equal(t, 6, calls.NewLane(1, 2).NewLane(0, 3).LaneCount())
}

// Numbers are unique however lanes are nested. Each call of a lane has the same number, whichever lane calls
// first.
func TestCallNumbers_AreUniqueAndIndependentOfTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 4), 1, 3), 1, 3).Draw(t, "calls of each inner lane, by outer lane")
		run := func(reverse bool) map[[3]int]int {
			calls, numbers := &scope.CallNumbers{}, map[[3]int]int{}
			numbers[[3]int{-1}] = calls.Next()
			outer := make([]*scope.CallNumbers, len(sizes))
			for i := range outer {
				outer[i] = calls.NewLane(i, len(outer))
			}
			for n := range sizes {
				i := n
				if reverse {
					i = len(sizes) - 1 - n
				}
				inner := make([]*scope.CallNumbers, len(sizes[i]))
				for j := range inner {
					inner[j] = outer[i].NewLane(j, len(inner))
					for k := range sizes[i][j] {
						numbers[[3]int{i, j, k}] = inner[j].Next()
					}
				}
				outer[i].JoinAll(inner...)
			}
			calls.JoinAll(outer...)
			numbers[[3]int{-2}] = calls.Next()
			return numbers
		}
		numbers := run(false)
		require.Equal(t, numbers, run(true))
		seen := map[int]bool{}
		for _, n := range numbers {
			require.False(t, seen[n], "number %d occurs twice", n)
			seen[n] = true
		}
	})
}
