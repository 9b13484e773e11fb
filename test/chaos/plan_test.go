package chaos

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/chaos/bugbuild"
	"github.com/troupe-dev/troupe/test/chaos/ledger"
	"github.com/troupe-dev/troupe/test/chaos/simclients"
	"github.com/troupe-dev/troupe/test/overlay"
)

func TestPlan_IsDeterminedByTheSeed(t *testing.T) {
	sizes := FaultCounts{WorkerKills: 20, MemoryKills: 5, RedisKills: 4, Stops: 6, Cuts: 11}
	strikes, stops := Plan(1, sizes)
	again, stopsAgain := Plan(1, sizes)
	require.Empty(t, cmp.Diff(strikes, again))
	require.Empty(t, cmp.Diff(stops, stopsAgain))
	other, _ := Plan(2, sizes)
	require.NotEmpty(t, cmp.Diff(strikes, other))

	count := map[simclients.Fault]int{}
	for _, s := range append(strikes, stops...) {
		count[s.Fault]++
		require.Equal(t, s.Fault == simclients.StopWorker, s.FreezeTime > 0)
	}
	require.Empty(t, cmp.Diff(map[simclients.Fault]int{
		simclients.KillWorker: 20, simclients.KillMemory: 5, simclients.KillRedis: 4, simclients.StopWorker: 6, simclients.LoseRedisReply: 5,
		simclients.LoseMemoryReply: 6,
	}, count))
}

func TestCallSelector_MatchesTheSelectedCall(t *testing.T) {
	answer := CallSelector{ledger.Model, 4}
	require.True(t, answer.Matches(ledger.Call{Kind: ledger.Model, Number: 4}))
	require.False(t, answer.Matches(ledger.Call{Kind: ledger.Model, Number: 2}))
	require.True(t, CallSelector{Kind: ledger.Read}.Matches(ledger.Call{Kind: ledger.Read}))
	require.False(t, CallSelector{}.Matches(ledger.Call{Kind: ledger.Read}))
}

// The table of planted bugs matches the code: each snippet is in its file.
func TestBugs_SnippetsOccurOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, b := range Bugs {
		require.False(t, seen[b.ID], "%s is there twice", b.ID)
		seen[b.ID] = true
		_, err := overlay.ApplyAll(bugbuild.RepositoryRoot(), b.Changes)
		require.NoError(t, err, b.ID)
	}
}
