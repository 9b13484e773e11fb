package queue

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// tryWaiter makes one step try to get a slot, as a woken step does.
func (q *queueFixture) tryWaiter(w *Waiter) (registry.Instance, bool) {
	list, _ := q.cache.List("a")
	in, _, ok := q.TakeSlot("a", list, selection.Input{}, w)
	return in, ok
}

// waitingNames returns the names of the waiting steps, in order.
func waitingNames(d *queueFixture, names map[*Waiter]string) (all []string) {
	for _, w := range d.agents["a"].waiting {
		all = append(all, names[w])
	}
	return all
}

// wokenWaiters returns the waiting steps with a pending wake-up.
func wokenWaiters(d *queueFixture, names map[*Waiter]string) (all []string) {
	for _, w := range d.agents["a"].waiting {
		if len(w.wakeChan) > 0 {
			all = append(all, names[w])
		}
	}
	return all
}

// Steps of begun turns come first. Otherwise steps are served in the order of arrival. Each free slot wakes only
// one step.
func TestWaitList_ServesBegunTurnsFirst(t *testing.T) {
	d, names := newQueueFixture(1, 2), map[*Waiter]string{}
	wait := func(name string, late bool) *Waiter {
		w := NewWaiter(Order{HasBegun: late})
		names[w] = name
		d.Join("a", w)
		return w
	}
	var taken []registry.Instance
	for n := range 2 {
		in, ok := d.tryWaiter(wait(fmt.Sprint("running", n), false))
		require.True(t, ok)
		taken = append(taken, in)
	}
	first, second := wait("first", false), wait("second", false)
	third := wait("third", true)
	require.Equal(t, []string{"third", "first", "second"}, waitingNames(d, names))
	for _, w := range []*Waiter{third, first, second} {
		_, ok := d.tryWaiter(w)
		require.False(t, ok)
	}
	require.Empty(t, wokenWaiters(d, names))

	d.ReleaseSlot(taken[0], true)
	require.Equal(t, []string{"third"}, wokenWaiters(d, names))
	_, ok := d.tryWaiter(first)
	require.False(t, ok, "it was not woken")
	newcomer := wait("newcomer", false)
	_, ok = d.tryWaiter(newcomer)
	require.False(t, ok, "others have waited")
	_, ok = d.tryWaiter(third)
	require.True(t, ok)
	require.Equal(t, []string{"first"}, wokenWaiters(d, names), "there may be one more")
	_, ok = d.tryWaiter(first)
	require.False(t, ok)
	require.Contains(t, wokenWaiters(d, names), "newcomer", "it was sent away before it had looked")

	d.ReleaseSlot(taken[1], true)
	d.Leave("a", first)
	require.Contains(t, wokenWaiters(d, names), "second", "a step that leaves passes its wake-up on")
	_, ok = d.tryWaiter(second)
	require.True(t, ok)
	require.Equal(t, []string{"newcomer"}, waitingNames(d, names))
}

// Among steps of the same kind, a higher priority of the turn comes first, then an earlier arrival. Steps of begun
// turns come before all others. Priority has no other effect.
// Req: OC-28
func TestWaitList_ServesHigherPrioritiesFirst(t *testing.T) {
	d, names := newQueueFixture(1, 1), map[*Waiter]string{}
	for _, s := range []struct {
		late     bool
		priority int
	}{{false, 5}, {false, 0}, {true, 5}, {false, 10}, {false, 5}, {true, 9}, {true, 9}, {false, 0}} {
		w := NewWaiter(Order{HasBegun: s.late, Priority: s.priority})
		names[w] = fmt.Sprint(len(names), " late ", s.late, ", ", s.priority)
		d.Join("a", w)
	}
	require.Equal(t, []string{
		"5 late true, 9", "6 late true, 9", "2 late true, 5",
		"3 late false, 10", "0 late false, 5", "4 late false, 5", "1 late false, 0", "7 late false, 0",
	}, waitingNames(d, names))
	for len(d.agents["a"].waiting) > 0 { // they get the slot in this order, no matter which others try
		first := d.agents["a"].waiting[0]
		in, ok := d.tryWaiter(first)
		require.True(t, ok, names[first])
		for _, w := range d.agents["a"].waiting {
			_, ok := d.tryWaiter(w)
			require.False(t, ok)
		}
		d.ReleaseSlot(in, true)
	}
}

// A step that waits for one particular instance does not delay steps that can use other instances.
func TestWaitList_SelectiveStepDelaysNoOtherStep(t *testing.T) {
	d := newQueueFixture(2, 1)
	var taken []registry.Instance
	for range 2 {
		in, _, ok := d.takeSlot("")
		require.True(t, ok)
		taken = append(taken, in)
	}
	named, other := NewWaiter(Order{HasBegun: true, IsSelective: true}), NewWaiter(Order{})
	list, _ := d.cache.List("a")
	wants := selection.Input{Policy: selection.Policy{Strategy: selection.Manual, Instance: taken[1].ID}}
	for _, w := range []*Waiter{named, other} {
		d.Join("a", w)
	}
	_, _, ok := d.TakeSlot("a", list, wants, named)
	require.False(t, ok)
	_, ok = d.tryWaiter(other)
	require.False(t, ok)

	d.ReleaseSlot(taken[0], true)
	<-named.wakeChan
	_, _, ok = d.TakeSlot("a", list, wants, named)
	require.False(t, ok)
	<-other.wakeChan
	in, ok := d.tryWaiter(other)
	require.True(t, ok)
	require.Equal(t, taken[0].ID, in.ID)
	require.True(t, d.ShouldPoll("a", named))
}
