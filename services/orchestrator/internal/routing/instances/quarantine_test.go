package instances

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

func quarantineState(agent string) registry.DesiredState {
	return registry.DesiredState{Key: registry.AgentKey(agent), Kind: registry.Quarantine, Reason: "it misbehaves", Since: time.Now()}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// No instance of a quarantined agent may get a step, whichever instance registers and whatever its desired state
// is (guarantee S18).
func TestCache_WithholdsInstancesOfAQuarantinedAgent(t *testing.T) {
	r, _ := filledCache()
	shut := r.Desired().QuarantineStarted("a")
	worker := identity.Principal{Role: identity.Worker, Name: "a"}
	require.NoError(t, r.Desired().RejectQuarantined(worker, ""))
	r.Desired().Put(quarantineState("a"))
	require.True(t, isClosed(shut))
	require.True(t, isClosed(r.Desired().QuarantineStarted("a")), "also for who asks later")
	require.False(t, isClosed(r.Desired().QuarantineStarted("b")))
	require.Empty(t, instances(r, "a"))
	require.Zero(t, r.Ready("a"))
	require.Zero(t, r.Capacity())
	put := instance("9", lifecycle.Ready)
	r.Apply(registry.Update{Put: &put})
	r.Desired().Put(registry.DesiredState{Key: put.Key(), Kind: registry.Run})
	list, _ := r.List("a")
	require.Empty(t, list.Instances)
	require.Len(t, list.Withheld, 5)
	require.Equal(t, selection.Quarantined, list.Withheld[4].Availability)

	require.True(t, failure.Is(r.Desired().RejectQuarantined(worker, ""), failure.PolicySecurity))
	require.NoError(t, r.Desired().RejectQuarantined(identity.Principal{Role: identity.Worker, Name: "b"}, ""))
	require.NoError(t, r.Desired().RejectQuarantined(identity.Principal{Role: identity.Client, Name: "a"}, ""), "a client is no agent")
	unclaimed, _ := r.UnclaimedDesiredStates()
	require.Empty(t, unclaimed, "it is not forgotten")

	r.Desired().EndQuarantine("a")
	require.Len(t, instances(r, "a"), 4)
	require.False(t, isClosed(r.Desired().QuarantineStarted("a")))
	require.NoError(t, r.Desired().RejectQuarantined(worker, ""))
	r.Desired().EndQuarantine("a")
	r.Desired().Put(quarantineState("a"))
	require.True(t, isClosed(r.Desired().QuarantineStarted("a")), "again")
}

// fixedDesiredStates is a registry that delivers desired states once.
type fixedDesiredStates struct{ registry.DesiredStates }

func (fixedDesiredStates) WatchDesiredStates(_ context.Context, apply func(map[registry.Key]registry.DesiredState)) error {
	d := quarantineState("b")
	apply(map[registry.Key]registry.DesiredState{d.Key: d})
	return nil
}

// After its start, an orchestrator gives no instance a step before it knows which agents are quarantined.
func TestCache_WaitsForTheDesiredState(t *testing.T) {
	r := New(zap.NewNop(), func(bool, map[string]bool) {})
	r.Desired().WithholdUntilKnown()
	other := instance("1", lifecycle.Ready)
	other.Agent = "b"
	r.Apply(registry.Update{List: &[]registry.Instance{instance("1", lifecycle.Ready), other}})
	require.Empty(t, instances(r, "a"))
	require.NoError(t, r.Desired().Watch(t.Context(), fixedDesiredStates{}))
	require.Len(t, instances(r, "a"), 1)
	require.Empty(t, instances(r, "b"))
}

// An orchestrator that starts without etcd takes the quarantined agents from its snapshot.
func TestSnapshot_ContainsQuarantinedAgents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "instances.json")
	runSnapshotTest(t, path, confirmingInstance("", ""), func(_ *testing.T, r *Cache) {
		r.Apply(registry.Update{List: &[]registry.Instance{instance("1", lifecycle.Ready)}})
		r.Desired().Put(quarantineState("a"))
		sleepFor(2 * time.Second)
	})
	runSnapshotTest(t, path, confirmingInstance("1", lifecycle.Ready), func(t *testing.T, r *Cache) {
		r.Desired().WithholdUntilKnown()
		r.Apply(registry.Update{Unreachable: errors.New("no etcd")})
		sleepFor(time.Second)
		require.True(t, r.IsFilled())
		require.Empty(t, instances(r, "a"))
		d, out := r.Desired().Quarantine("a")
		require.True(t, out)
		require.Equal(t, "it misbehaves", d.Reason)
	})
}
