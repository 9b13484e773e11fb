package instances

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/inmem"
)

// vanishFixture is a cache of instances whose registrations and workers can disappear.
type vanishFixture struct {
	*Cache
	t             *testing.T
	registry      *inmem.Registry
	logs          *observer.ObservedLogs
	registrations map[string]registry.Registration

	mu     sync.Mutex
	health map[string]Health // by address
}

// runVanishTest runs a test with n instances of one agent, in a synctest bubble.
func runVanishTest(t *testing.T, n int, test func(*vanishFixture)) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		m := &vanishFixture{
			Cache: New(zap.New(core), func(bool, map[string]bool) {}), t: t, logs: logs,
			registry: inmem.New(), registrations: map[string]registry.Registration{}, health: map[string]Health{},
		}
		m.SetProbe(func(_ context.Context, in registry.Instance) Health {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.health[in.Address]
		})
		for i := range n {
			m.register(fmt.Sprint(i))
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- m.Watch(ctx, m.registry) }()
		go func() { ended <- m.Desired().Watch(ctx, m.registry) }()
		synctest.Wait()
		test(m)
		cancel()
		require.NoError(t, errors.Join(<-ended, <-ended))
	})
}

func (v *vanishFixture) register(id string) {
	v.t.Helper()
	registration, err := v.registry.Register(v.t.Context(), instance(id, lifecycle.Ready))
	require.NoError(v.t, err)
	v.registrations[id] = registration
	v.setHealth(id, Serving)
}

func (v *vanishFixture) setHealth(id string, h Health) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.health[id+":1"] = h
}

// vanish removes registrations and waits until the cache has noticed.
func (v *vanishFixture) vanish(ids ...string) {
	v.t.Helper()
	for _, id := range ids {
		require.NoError(v.t, v.registrations[id].Close(v.t.Context()))
	}
	synctest.Wait()
	time.Sleep(10 * time.Millisecond) // in the time of the bubble
	synctest.Wait()
}

func (v *vanishFixture) sleep(d time.Duration) { time.Sleep(d); synctest.Wait() }

func (v *vanishFixture) routableIDs() map[string]bool {
	ids := map[string]bool{}
	candidates := instances(v.Cache, "a")
	for _, in := range candidates {
		ids[in.ID] = true
	}
	return ids
}

func TestMissing_InstanceThatAnswersIsKeptForATTL(t *testing.T) {
	runVanishTest(t, 3, func(m *vanishFixture) {
		m.vanish("0")
		require.Equal(t, map[string]bool{"1": true, "2": true}, m.routableIDs(), "no new steps")
		require.Len(t, m.Instances(), 3)
		require.True(t, m.IsMissing(registry.Key{Agent: "a", ID: "0"}))
		require.False(t, m.IsMissing(registry.Key{Agent: "a", ID: "1"}))
		m.sleep(registrationTTL - time.Second)
		require.Len(t, m.Instances(), 3)
		m.sleep(3 * time.Second)
		require.Len(t, m.Instances(), 2)
	})
}

func TestMissing_InstanceThatRegistersAgainIsNotMissing(t *testing.T) {
	runVanishTest(t, 3, func(m *vanishFixture) {
		m.vanish("0")
		m.sleep(5 * time.Second)
		m.register("0")
		synctest.Wait()
		require.Len(t, m.routableIDs(), 3)
		require.False(t, m.IsMissing(registry.Key{Agent: "a", ID: "0"}))
		m.sleep(2 * registrationTTL)
		require.Len(t, m.Instances(), 3)
	})
}

func TestMissing_InstanceThatDoesNotServeIsRemovedAtOnce(t *testing.T) {
	for _, health := range []Health{NotServing, Unreachable} {
		runVanishTest(t, 10, func(m *vanishFixture) {
			m.setHealth("0", health)
			m.vanish("0")
			require.Len(t, m.Instances(), 9)
			require.False(t, m.IsMissing(registry.Key{Agent: "a", ID: "0"}))
			m.sleep(2 * registrationTTL)
			require.Len(t, m.Instances(), 9)
		})
	}
}

// A process that registers at the address of a vanished instance replaces that instance.
func TestMissing_SuccessorReplacesAMissingInstance(t *testing.T) {
	runVanishTest(t, 3, func(m *vanishFixture) {
		m.vanish("0")
		successor := instance("new", lifecycle.Ready)
		successor.Address = "0:1"
		_, err := m.registry.Register(t.Context(), successor)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, map[string]bool{"1": true, "2": true, "new": true}, m.routableIDs())
		require.Len(t, m.Instances(), 3)
	})
}

func TestMissing_DrainedInstanceIsRemovedAtOnce(t *testing.T) {
	runVanishTest(t, 3, func(m *vanishFixture) {
		require.NoError(t, m.registry.SetDesired(t.Context(), registry.DesiredState{Key: registry.Key{Agent: "a", ID: "0"}, Kind: registry.Drain}))
		synctest.Wait()
		require.Len(t, m.routableIDs(), 2)
		m.vanish("0")
		require.Len(t, m.Instances(), 2)
	})
}

// Removals are frozen when more than 15 % of the instances, and at least two, vanish at once (guarantee F11).
func TestMissing_FreezesRemovalsWhenManyVanish(t *testing.T) {
	runVanishTest(t, 13, func(m *vanishFixture) {
		m.setHealth("1", Unreachable)
		m.vanish("0") // 8 %
		require.False(t, m.HasFrozenRemovals())
		m.sleep(5 * time.Second)
		m.vanish("1") // 15.4 % of 13
		require.True(t, m.HasFrozenRemovals())
		require.Len(t, m.routableIDs(), 13, "as last known")
		require.Equal(t, 13, m.Ready("a"))
		require.Equal(t, 1, m.logs.FilterMessageSnippet("many registrations vanished at once").Len())

		m.sleep(registrationTTL + 2*time.Second)
		require.True(t, m.HasFrozenRemovals(), "one of them answers still")
		require.Len(t, m.routableIDs(), 12, "the other is gone")
		m.register("0")
		m.sleep(2 * time.Second)
		require.False(t, m.HasFrozenRemovals())
		require.Len(t, m.routableIDs(), 12)
	})
}

// Each missing instance is kept for its own registrationTTL. Instances that vanish later do not extend it.
func TestMissing_FrozenRemovalsDoNotKeepDeadInstances(t *testing.T) {
	runVanishTest(t, 10, func(m *vanishFixture) {
		m.setHealth("1", Unreachable)
		m.vanish("0", "1", "2")
		require.True(t, m.HasFrozenRemovals())
		for n, id := range []string{"3", "4"} {
			m.sleep(7 * time.Second)
			m.vanish(id)
			require.True(t, m.HasFrozenRemovals(), "%d", n)
		}
		require.True(t, m.routableIDs()["1"])
		m.sleep(3 * time.Second)
		require.True(t, m.HasFrozenRemovals())
		require.False(t, m.routableIDs()["1"], "it was gone for more than a registrationTTL")
		require.Len(t, m.routableIDs(), 9)
	})
}

func TestMissing_FewVanishedInstancesDoNotFreezeRemovals(t *testing.T) {
	runVanishTest(t, 14, func(m *vanishFixture) { // 2 of 14 are 14.3 %
		m.vanish("0", "1")
		require.False(t, m.HasFrozenRemovals())
	})
	runVanishTest(t, 2, func(m *vanishFixture) { // one is half of them, but still only one
		m.vanish("0")
		require.False(t, m.HasFrozenRemovals())
	})
	runVanishTest(t, 4, func(m *vanishFixture) { // one, and another much later
		m.setHealth("0", Unreachable)
		m.setHealth("1", Unreachable)
		m.vanish("0")
		m.sleep(registrationTTL + 2*time.Second)
		m.vanish("1")
		require.False(t, m.HasFrozenRemovals())
	})
	runVanishTest(t, 4, func(m *vanishFixture) { // all stop gracefully, and report it
		for _, id := range []string{"0", "1", "2", "3"} {
			m.setHealth(id, NotServing)
		}
		m.vanish("0", "1", "2", "3")
		require.False(t, m.HasFrozenRemovals())
		require.Empty(t, m.Instances())
	})
}

// Instances that are absent from the first list after a registry outage count as vanished.
func TestMissing_FreezesRemovalsWhenAListLacksMany(t *testing.T) {
	runVanishTest(t, 4, func(m *vanishFixture) {
		m.Apply(registry.Update{List: &[]registry.Instance{instance("0", lifecycle.Ready)}})
		m.sleep(10 * time.Millisecond)
		require.True(t, m.HasFrozenRemovals())
		require.Len(t, m.routableIDs(), 4)
		for _, id := range []string{"1", "2", "3"} {
			m.setHealth(id, Unreachable)
		}
		m.sleep(registrationTTL + 2*time.Second)
		require.False(t, m.HasFrozenRemovals())
		require.Len(t, m.routableIDs(), 1)
	})
}

func TestCache_WithholdsInstancesThatMustNotRun(t *testing.T) {
	r, _ := filledCache()
	key := registry.Key{Agent: "a", ID: "1"}
	_, changed := r.List("a")
	for _, want := range []registry.DesiredKind{registry.Pause, registry.Drain, "SOMETHING_NEW"} {
		r.Desired().Put(registry.DesiredState{Key: key, Kind: want})
		candidates := instances(r, "a")
		require.Len(t, candidates, 2)
		require.Equal(t, 2, r.Ready("a"))
		require.Len(t, r.Instances(), 4)
	}
	<-changed
	r.Desired().Put(registry.DesiredState{Key: key, Kind: registry.Run})
	require.Equal(t, 3, r.Ready("a"))
}

func TestCache_FindsUnclaimedDesiredStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := filledCache()
		paused := registry.DesiredState{Key: registry.Key{Agent: "a", ID: "9"}, Kind: registry.Pause}
		drained := registry.DesiredState{Key: registry.Key{Agent: "a", ID: "8"}, Kind: registry.Drain}
		r.Desired().Put(paused, drained, registry.DesiredState{Key: registry.Key{Agent: "a", ID: "1"}, Kind: registry.Pause})
		unclaimed, _ := r.UnclaimedDesiredStates()
		require.Equal(t, []registry.DesiredState{drained}, unclaimed, "the end of a drain is no loss")
		time.Sleep(registrationTTL) // in the time of the bubble
		unclaimed, _ = r.UnclaimedDesiredStates()
		require.ElementsMatch(t, []registry.DesiredState{paused, drained}, unclaimed)
		r.Apply(registry.Update{Unreachable: errors.New("no etcd")})
		unclaimed, _ = r.UnclaimedDesiredStates()
		require.Empty(t, unclaimed, "it cannot be known")
		r.Apply(registry.Update{List: &[]registry.Instance{}})
		unclaimed, _ = r.UnclaimedDesiredStates()
		require.Equal(t, []registry.DesiredState{drained}, unclaimed, "they have a registrationTTL to come back")
	})
}

// A paused worker that registers again shortly after its registration vanished is still paused.
func TestCache_KeepsAPauseWhenARegistrationIsBrieflyLost(t *testing.T) {
	for _, health := range []Health{Serving, NotServing, Unreachable} {
		runVanishTest(t, 3, func(m *vanishFixture) {
			pause := registry.DesiredState{Key: registry.Key{Agent: "a", ID: "0"}, Kind: registry.Pause}
			require.NoError(t, m.registry.SetDesired(t.Context(), pause))
			m.setHealth("0", health)
			m.vanish("0")
			for range int(registrationTTL/time.Second) - 2 {
				unclaimed, _ := m.UnclaimedDesiredStates()
				require.Empty(t, unclaimed)
				m.sleep(time.Second)
			}
			m.register("0")
			m.sleep(2 * registrationTTL)
			unclaimed, _ := m.UnclaimedDesiredStates()
			require.Empty(t, unclaimed)
			require.Equal(t, map[string]bool{"1": true, "2": true}, m.routableIDs())

			m.setHealth("0", health)
			m.vanish("0")
			m.sleep(2*registrationTTL + 2*time.Second)
			_, _ = m.UnclaimedDesiredStates()
			m.sleep(registrationTTL)
			unclaimed, _ = m.UnclaimedDesiredStates()
			require.Equal(t, []registry.DesiredState{pause}, unclaimed, "it is gone")
		})
	}
}
