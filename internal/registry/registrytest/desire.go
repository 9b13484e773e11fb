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
func DesiredState(agent, id string, want registry.DesiredKind) registry.DesiredState {
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
		ended <- d.WatchDesires(ctx, func(all map[registry.Key]registry.DesiredState) {
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
func (o *desiredObserver) until(want ...registry.DesiredState) {
	o.t.Helper()
	all := map[registry.Key]registry.DesiredState{}
	for _, d := range want {
		all[d.Key] = d
	}
	timer := time.NewTimer(patience)
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

func testDesires(t *testing.T, r registry.Registry) {
	early := observeDesired(t, r)
	early.until()
	a, b := DesiredState("research", "a", registry.Pause), DesiredState("research", "b", registry.Drain)
	require.NoError(t, r.SetDesired(t.Context(), a, b))
	early.until(a, b)
	a.Kind, a.Reason = registry.Run, ""
	require.NoError(t, r.SetDesired(t.Context(), a))
	early.until(a, b)
	require.NoError(t, r.SetDesired(t.Context(), a), "repeated")
	observeDesired(t, r).until(a, b) // a watch that starts later gets all states
}

func testManyDesires(t *testing.T, r registry.Registry) {
	o := observeDesired(t, r)
	var all []registry.DesiredState
	for i := range 250 {
		all = append(all, DesiredState("research", fmt.Sprint(i), registry.Pause))
	}
	require.NoError(t, r.SetDesired(t.Context(), all...))
	o.until(all...)
}

func testConcurrentDesires(t *testing.T, r registry.Registry) {
	const writers = 8
	var all []registry.DesiredState
	for i := range writers {
		all = append(all, DesiredState("research", fmt.Sprint(i), registry.Drain))
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
		o.until(all...)
	}
	writing.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// A desired state outlives its instance until it is removed. While the instance is registered, removing it has no
// effect.
func testForget(t *testing.T, r registry.Registry) {
	o := observeDesired(t, r)
	reg := Register(t, r, Instance("research", "a"))
	d := DesiredState("research", "a", registry.Drain)
	require.NoError(t, r.SetDesired(t.Context(), d))
	o.until(d)
	require.NoError(t, r.Forget(t.Context(), d.Key))
	observeDesired(t, r).until(d)
	require.NoError(t, reg.Close(t.Context()))
	observeDesired(t, r).until(d)
	require.NoError(t, r.Forget(t.Context(), d.Key))
	o.until()
	require.NoError(t, r.Forget(t.Context(), d.Key), "repeated")
}

// The desired state of a whole agent is independent of its instances' states. It can be removed while they are
// registered.
func testDesireOfAnAgent(t *testing.T, r registry.Registry) {
	o := observeDesired(t, r)
	Register(t, r, Instance("research", "a"))
	one := DesiredState("research", "a", registry.Pause)
	whole, other := DesiredState("research", "", registry.Quarantine), DesiredState("researcher", "", registry.Quarantine)
	require.NoError(t, r.SetDesired(t.Context(), one, whole, other))
	o.until(one, whole, other)
	require.NoError(t, r.Forget(t.Context(), whole.Key))
	o.until(one, other)
	require.NoError(t, r.Forget(t.Context(), whole.Key), "repeated")
	observeDesired(t, r).until(one, other)
}

// Desired states do not appear as instances and do not change them.
func testDesiredStatesAreNotInstances(t *testing.T, r registry.Registry) {
	o := Observe(t, r)
	require.Empty(t, o.List())
	require.NoError(t, r.SetDesired(t.Context(), DesiredState("research", "a", registry.Pause)))
	Register(t, r, Instance("research", "a"))
	require.Equal(t, Instance("research", "a").State, o.Put().State)
	require.Len(t, Observe(t, r).List(), 1)
}

func testDesiresEnd(t *testing.T, r registry.Registry) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	require.NoError(t, r.WatchDesires(ctx, func(map[registry.Key]registry.DesiredState) { calls++; cancel() }))
	require.Equal(t, 1, calls)
	require.Error(t, r.SetDesired(ctx, DesiredState("research", "a", registry.Pause)))
	observeDesired(t, r).until()
}
