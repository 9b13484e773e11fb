package run

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Every state that the table mentions has a row, can be reached from opened, and leads to ended. Every working
// state can lead to stopping.
func TestStateSpecs_EveryStateIsReachableAndLeadsToEnded(t *testing.T) {
	reached := map[state]bool{}
	var walk func(at state)
	walk = func(at state) {
		if reached[at] {
			return
		}
		reached[at] = true
		for _, next := range stateSpecs[at].next {
			walk(next)
		}
	}
	walk(opened)
	require.True(t, reached[ended])
	require.Len(t, reached, len(stateSpecs)+1, "ended alone has nothing to do")
	for at, spec := range stateSpecs {
		require.True(t, reached[at], "%s is reached", at)
		require.NotNil(t, spec.enter, at)
		require.NotEmpty(t, spec.next, at)
		require.True(t, at.canLeadTo(ended, map[state]bool{}), "%s has an end", at)
	}
	require.NotContains(t, stateSpecs, ended)
	for _, at := range []state{opened, initializing, resuming, beginning, running} {
		require.True(t, at.isWorking(), at)
	}
	for _, at := range []state{stopping, handingOver, closing, ended} {
		require.False(t, at.isWorking(), "%s comes after the work", at)
	}
}

// No state after stopping is a working state.
func TestStateSpecs_NoWorkFollowsStopping(t *testing.T) {
	for _, at := range []state{opened, initializing, resuming, beginning, running} {
		require.False(t, stopping.canLeadTo(at, map[state]bool{}), at)
	}
}

// canLeadTo reports whether another state can follow a state, immediately or later.
func (s state) canLeadTo(to state, seen map[state]bool) bool {
	for _, next := range stateSpecs[s].next {
		if next == to {
			return true
		}
		if !seen[next] {
			seen[next] = true
			if next.canLeadTo(to, seen) {
				return true
			}
		}
	}
	return false
}
