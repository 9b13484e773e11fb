package registrytest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/registry"
)

// NewDesiredState returns a desired state with every field set.
func NewDesiredState(agent, id string, want registry.DesiredKind) registry.DesiredState {
	return registry.DesiredState{
		Key: registry.Key{Agent: agent, ID: id}, Kind: want, Reason: "a closer look",
		Since: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC),
	}
}

// desiredObserver receives the desired states from a watch that ends with the test.
type desiredObserver struct {
	t       *testing.T
	updates chan map[registry.Key]registry.DesiredState
}

func observeDesired(t *testing.T, d registry.DesiredStates) *desiredObserver {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	o := &desiredObserver{t, make(chan map[registry.Key]registry.DesiredState)}
	ended := make(chan error, 1)
	go func() {
		ended <- d.WatchDesiredStates(ctx, func(all map[registry.Key]registry.DesiredState) {
			select {
			case o.updates <- all:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	return o
}

// awaitStates reads updates until the desired states are exactly the wanted ones.
func (o *desiredObserver) awaitStates(want ...registry.DesiredState) {
	o.t.Helper()
	all := map[registry.Key]registry.DesiredState{}
	for _, d := range want {
		all[d.Key] = d
	}
	timer := time.NewTimer(waitTimeout)
	defer timer.Stop()
	diff := "no update came"
	for diff != "" {
		select {
		case got := <-o.updates:
			diff = cmp.Diff(all, got)
		case <-timer.C:
			require.FailNow(o.t, "the desired states did not arrive", diff)
		}
	}
}

func testDesiredStates(t *testing.T, r registry.Registry) {
	early := observeDesired(t, r)
	early.awaitStates()
	a, b := NewDesiredState("research", "a", registry.Pause), NewDesiredState("research", "b", registry.Drain)
	require.NoError(t, r.SetDesired(t.Context(), a, b))
	early.awaitStates(a, b)
	a.Kind, a.Reason = registry.Run, ""
	require.NoError(t, r.SetDesired(t.Context(), a))
	early.awaitStates(a, b)
	require.NoError(t, r.SetDesired(t.Context(), a), "repeated")
	observeDesired(t, r).awaitStates(a, b) // a watch that starts later gets all states
}

func testManyDesiredStates(t *testing.T, r registry.Registry) {
	o := observeDesired(t, r)
	var all []registry.DesiredState
	for i := range 250 {
		all = append(all, NewDesiredState("research", fmt.Sprint(i), registry.Pause))
	}
	require.NoError(t, r.SetDesired(t.Context(), all...))
	o.awaitStates(all...)
}

func testConcurrentDesiredStates(t *testing.T, r registry.Registry) {
	const writers = 8
	var all []registry.DesiredState
	for i := range writers {
		all = append(all, NewDesiredState("research", fmt.Sprint(i), registry.Drain))
	}
	var writing sync.WaitGroup
	errs := make([]error, writers)
	for i, d := range all {
		writing.Go(func() {
			before := d
			before.Kind = registry.Pause
			if errs[i] = r.SetDesired(t.Context(), before); errs[i] == nil {
				errs[i] = r.SetDesired(t.Context(), d)
			}
		})
	}
	observers := []*desiredObserver{observeDesired(t, r), observeDesired(t, r)}
	for _, o := range observers {
		o.awaitStates(all...)
	}
	writing.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// A desired state outlives its instance until it is removed. While the instance is registered, removing it has no
// effect.
func testRemoveDesired(t *testing.T, r registry.Registry) {
	o := observeDesired(t, r)
	reg := Register(t, r, NewInstance("research", "a"))
	d := NewDesiredState("research", "a", registry.Drain)
	require.NoError(t, r.SetDesired(t.Context(), d))
	o.awaitStates(d)
	require.NoError(t, r.RemoveDesired(t.Context(), d.Key))
	observeDesired(t, r).awaitStates(d)
	require.NoError(t, reg.Close(t.Context()))
	observeDesired(t, r).awaitStates(d)
	require.NoError(t, r.RemoveDesired(t.Context(), d.Key))
	o.awaitStates()
	require.NoError(t, r.RemoveDesired(t.Context(), d.Key), "repeated")
}

// The desired state of a whole agent is independent of its instances' states. It can be removed while they are
// registered.
func testDesiredStateOfAgent(t *testing.T, r registry.Registry) {
	o := observeDesired(t, r)
	Register(t, r, NewInstance("research", "a"))
	one := NewDesiredState("research", "a", registry.Pause)
	whole, other := NewDesiredState("research", "", registry.Quarantine), NewDesiredState("researcher", "", registry.Quarantine)
	require.NoError(t, r.SetDesired(t.Context(), one, whole, other))
	o.awaitStates(one, whole, other)
	require.NoError(t, r.RemoveDesired(t.Context(), whole.Key))
	o.awaitStates(one, other)
	require.NoError(t, r.RemoveDesired(t.Context(), whole.Key), "repeated")
	observeDesired(t, r).awaitStates(one, other)
}

// Desired states do not appear as instances and do not change them.
func testDesiredStatesAreNotInstances(t *testing.T, r registry.Registry) {
	o := Observe(t, r)
	require.Empty(t, o.NextList())
	require.NoError(t, r.SetDesired(t.Context(), NewDesiredState("research", "a", registry.Pause)))
	Register(t, r, NewInstance("research", "a"))
	require.Equal(t, NewInstance("research", "a").State, o.NextPut().State)
	require.Len(t, Observe(t, r).NextList(), 1)
}

func testDesiredWatchEnds(t *testing.T, r registry.Registry) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	require.NoError(t, r.WatchDesiredStates(ctx, func(map[registry.Key]registry.DesiredState) { calls++; cancel() }))
	require.Equal(t, 1, calls)
	require.Error(t, r.SetDesired(ctx, NewDesiredState("research", "a", registry.Pause)))
	observeDesired(t, r).awaitStates()
}
