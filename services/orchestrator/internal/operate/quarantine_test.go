package operate

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/inmem"
	"github.com/troupe-dev/troupe/internal/registry/registrytest"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
)

// Guarantees S18.
func TestOperator_QuarantinesAnAgentAndReleasesIt(t *testing.T) {
	r := newOperatorFixture(t)
	a, b, other := r.addWorker(t, "research", "a"), r.addWorker(t, "research", "b"), r.addWorker(t, "synthesis", "c")
	require.Len(t, r.routableIDs("research"), 2)
	outcomes, err := r.Quarantine(t.Context(), "research", "it misbehaves")
	require.NoError(t, err)
	require.Len(t, outcomes, 2)
	for _, out := range outcomes {
		require.NoError(t, out.Err)
		require.Equal(t, "quarantined: it misbehaves", out.Status.GetReason())
	}
	require.Equal(t, lifecycle.Paused, a.instance.Status().State)
	require.Equal(t, lifecycle.Paused, b.instance.Status().State)
	require.Equal(t, lifecycle.Ready, other.instance.Status().State)
	require.Empty(t, r.routableIDs("research"))
	require.Len(t, r.routableIDs("synthesis"), 1)
	require.Equal(t, registry.Quarantine, r.recordedState(t, "research", "").Kind)

	paused := registry.DesiredState{Key: registry.Key{Agent: "research", ID: "b"}, Kind: registry.Pause} // recorded before
	require.NoError(t, r.registry.SetDesired(t.Context(), paused))
	await(t, "it is in the cache", func() bool { return r.instances.Desired().Get(paused.Key).Kind == registry.Pause })
	outcomes, err = r.Release(t.Context(), "research", "it was harmless")
	require.NoError(t, err)
	require.Len(t, outcomes, 1)
	require.Equal(t, lifecycle.Ready, a.instance.Status().State)
	require.Equal(t, lifecycle.Paused, b.instance.Status().State, "that is wanted of it still")
	require.Equal(t, map[string]bool{"a": true}, r.routableIDs("research"))
	require.Zero(t, r.recordedState(t, "research", ""))
	_, err = r.Release(t.Context(), "research", "")
	require.True(t, failure.Is(err, failure.NotFound), "%v", err)
}

// A quarantine that one orchestrator records takes effect at all orchestrators, because each watches the registry.
func TestOperator_QuarantineAppliesAtEveryOrchestrator(t *testing.T) {
	r := newOperatorFixture(t)
	r.addWorker(t, "research", "a")
	other := instances.New(zap.NewNop(), func(bool, map[string]bool) {})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- other.Desired().Watch(ctx, r.registry) }()
	go func() { ended <- other.Watch(ctx, r.registry) }()
	await(t, "the other knows the agent", func() bool { return other.Ready("research") == 1 })
	worker := identity.Principal{Role: identity.Worker, Name: "research"}
	require.NoError(t, other.Desired().RejectQuarantined(worker, ""))
	shut := other.Desired().QuarantineStarted("research") // as a turn at another orchestrator waits for it

	_, err := r.Quarantine(t.Context(), "research", "it misbehaves")
	require.NoError(t, err)
	select {
	case <-shut:
	case <-time.After(testTimeout):
		require.FailNow(t, "the other does not hear of it")
	}
	require.True(t, failure.Is(other.Desired().RejectQuarantined(worker, ""), failure.PolicySecurity))
	require.Zero(t, other.Ready("research"))

	_, err = r.Release(t.Context(), "research", "it was harmless")
	require.NoError(t, err)
	await(t, "the other hears that it is over", func() bool {
		return other.Ready("research") == 1 && other.Desired().RejectQuarantined(worker, "") == nil
	})
	cancel()
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
}

// An orchestrator that has not read the registry yet does not claim that an agent is not quarantined.
func TestOperator_ReleaseFailsBeforeQuarantinesAreKnown(t *testing.T) {
	desires := &lateRegistry{inmem.New(), make(chan struct{})}
	require.NoError(t, desires.SetDesired(t.Context(), registry.DesiredState{Key: registry.AgentKey("research"), Kind: registry.Quarantine}))
	cache := instances.New(zap.NewNop(), func(bool, map[string]bool) {})
	cache.Desired().WithholdUntilKnown()
	o := New(cache, desires, nil, zap.NewNop())
	_, err := o.Release(t.Context(), "research", "")
	require.True(t, failure.Is(err, failure.SystemNetwork), "%v", err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- cache.Desired().Watch(ctx, desires) }()
	close(desires.answer)
	await(t, "the registry is read", cache.Desired().IsFromRegistry)
	_, err = o.Release(t.Context(), "research", "")
	require.NoError(t, err)
	cancel()
	require.NoError(t, <-ended)
}

// lateRegistry is a registry whose desired states arrive late.
type lateRegistry struct {
	*inmem.Registry
	answer chan struct{}
}

func (l *lateRegistry) WatchDesiredStates(ctx context.Context, apply func(map[registry.Key]registry.DesiredState)) error {
	<-l.answer
	return l.Registry.WatchDesiredStates(ctx, apply)
}

// An agent without instances can be quarantined. An instance that registers later is paused.
func TestOperator_PausesWorkersThatRegisterDuringAQuarantine(t *testing.T) {
	r := newOperatorFixture(t)
	r.addWorker(t, "synthesis", "c")
	outcomes, err := r.Quarantine(t.Context(), "research", "it misbehaves")
	require.NoError(t, err)
	require.Empty(t, outcomes)
	w := &worker{paused: make(chan struct{}, 8), id: "a"}
	w.instance = lifecycle.New(lifecycle.Config{Capacity: 4})
	require.NoError(t, w.instance.Startup(t.Context()))
	t.Cleanup(func() { _ = w.instance.Shutdown(t.Context(), 0, "the test ends") })
	in := registrytest.NewInstance("research", "a")
	in.Address, in.State = serve(t, w), lifecycle.Ready
	registrytest.Register(t, r.registry, in)
	await(t, "it is in the cache", func() bool { return r.awaitCached(in.Key()) })
	require.Empty(t, r.routableIDs("research"))
	r.enforceQuarantines(t.Context())
	require.Equal(t, lifecycle.Paused, w.instance.Status().State)
}

// A quarantine whose write is in doubt is not reverted, so that an agent is never released by accident.
func TestOperator_DoesNotRevertAQuarantineInDoubt(t *testing.T) {
	r := newOperatorFixture(t)
	r.addWorker(t, "research", "a")
	r.losesAnswers.Store(true)
	_, err := r.Quarantine(t.Context(), "research", "it misbehaves")
	require.True(t, failure.Is(err, failure.SystemNetwork), "%v", err)
	require.ErrorContains(t, err, "call again")
	await(t, "what was recorded takes effect", func() bool { return len(r.routableIDs("research")) == 0 })
	r.rejectsWrites.Store(true)
	require.Equal(t, registry.Quarantine, r.recordedState(t, "research", "").Kind)
}
