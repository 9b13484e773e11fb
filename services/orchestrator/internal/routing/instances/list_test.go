package instances

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

func classes(l *List) map[string]selection.CandidateClass {
	all := map[string]selection.CandidateClass{}
	for i, c := range l.Candidates {
		if l.Instances[i].ID == c.ID {
			all[c.ID] = c.Class
		}
	}
	return all
}

func TestList_SeparatesUsableFromWithheldInstances(t *testing.T) {
	r := New(zap.NewNop(), func(bool, map[string]bool) {})
	known := []registry.Instance{instance("9", lifecycle.Ready), instance("1", lifecycle.Ready)}
	for i, state := range []lifecycle.State{
		lifecycle.Uninitialized, lifecycle.Initializing, lifecycle.Paused, lifecycle.ShuttingDown, lifecycle.Ready, lifecycle.Ready, lifecycle.Ready,
	} {
		known = append(known, instance(fmt.Sprint(i+2), state))
	}
	known[0].Capacity, known[0].Version, known[0].Incarnation = 4, "v1", 7
	other := instance("10", lifecycle.Ready)
	other.Agent = "b"
	r.Apply(registry.Update{List: new(append(known, other))})
	for id, want := range map[string]registry.DesiredKind{"6": registry.Pause, "7": registry.Drain, "8": "SOMETHING_NEW"} {
		r.Desired().Put(registry.DesiredState{Key: registry.Key{Agent: "a", ID: id}, Kind: want})
	}
	l, _ := r.List("a")
	require.Equal(t, map[string]selection.CandidateClass{"1": selection.Ready, "9": selection.Ready, "2": selection.Unstarted}, classes(l))
	require.Equal(t, selection.ClassSizes{2, 0, 1}, l.Sizes)
	require.Equal(t, []selection.Rejected{
		{ID: "3", Availability: selection.NotReady},
		{ID: "4", Availability: selection.Paused},
		{ID: "5", Availability: selection.Draining},
		{ID: "6", Availability: selection.Paused},
		{ID: "7", Availability: selection.Draining},
		{ID: "8", Availability: selection.Paused},
	}, l.Withheld)
	nine := l.Candidates[1]
	require.Equal(t, "v1", nine.Version)
	require.EqualValues(t, 7, nine.Incarnation)
	require.EqualValues(t, 4, nine.Capacity)
	require.EqualValues(t, 1, nine.Position)
	require.Equal(t, 2, r.Ready("a"))
}

// The list of an agent is built once for each change of the cache, not for each decision.
func TestList_IsBuiltOncePerChange(t *testing.T) {
	r, _ := filledCache()
	first, changed := r.List("a")
	again, _ := r.List("a")
	require.Same(t, first, again)
	require.Zero(t, testing.AllocsPerRun(10, func() { r.List("a") }))

	five := instance("5", lifecycle.Ready)
	r.Apply(registry.Update{Put: &five})
	<-changed
	later, _ := r.List("a")
	require.Len(t, later.Instances, 4)
	require.Len(t, first.Instances, 3, "a list that was handed out does not change")
}

// A vanished instance that still answers gets no steps. When many vanish at once, they keep getting steps, but
// after registered instances.
func TestList_RanksMissingInstancesLast(t *testing.T) {
	runVanishTest(t, 8, func(m *vanishFixture) {
		m.vanish("0")
		l, _ := m.List("a")
		require.Len(t, l.Candidates, 7)
		require.Equal(t, []selection.Rejected{{ID: "0", Incarnation: l.Withheld[0].Incarnation, Availability: selection.Missing}}, l.Withheld)
		m.vanish("1")
		require.True(t, m.HasFrozenRemovals())
		l, _ = m.List("a")
		require.Equal(t, selection.ClassSizes{6, 2, 0}, l.Sizes)
		require.Equal(t, "1", l.Candidates[7].ID)
		require.Equal(t, selection.Unregistered, classes(l)["0"])
		require.Equal(t, 8, m.Ready("a"))
		m.sleep(3 * time.Second)
	})
}

func BenchmarkCache_List(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := New(zap.NewNop(), func(bool, map[string]bool) {})
			known := make([]registry.Instance, n)
			for i := range known {
				known[i] = instance(fmt.Sprintf("%04d", i), lifecycle.Ready)
			}
			r.Apply(registry.Update{List: &known})
			b.ReportAllocs()
			for b.Loop() {
				r.List("a")
			}
		})
	}
}
