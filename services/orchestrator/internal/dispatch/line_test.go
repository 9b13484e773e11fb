package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// look is one look of a step for a place, as it looks once it was told to.
func (d *desk) look(w *waiter) (registry.Instance, bool) {
	list, _ := d.roster.List("a")
	in, _, ok := d.take("a", list, selection.Input{}, w)
	return in, ok
}

// queue is the names of the steps that wait, in order.
func queue(d *desk, names map[*waiter]string) (all []string) {
	for _, w := range d.agents["a"].waiting {
		all = append(all, names[w])
	}
	return all
}

// told are the steps that know that they shall look, of those that wait.
func told(d *desk, names map[*waiter]string) (all []string) {
	for _, w := range d.agents["a"].waiting {
		if len(w.again) > 0 {
			all = append(all, names[w])
		}
	}
	return all
}

// What was begun comes first, and nobody overtakes: neither a newcomer, nor one that was not
// told of the place. Each place that becomes free wakes one step, and not all.
func TestLine_FinishesWhatWasBegun(t *testing.T) {
	d, names := newDesk(1, 2), map[*waiter]string{}
	wait := func(name string, late bool) *waiter {
		w := newWaiter(late, false)
		names[w] = name
		d.join("a", w)
		return w
	}
	var taken []registry.Instance
	for n := range 2 {
		in, ok := d.look(wait(fmt.Sprint("running", n), false))
		require.True(t, ok)
		taken = append(taken, in)
	}
	first, second := wait("first", false), wait("second", false)
	third := wait("third", true)
	require.Equal(t, []string{"third", "first", "second"}, queue(d, names))
	for _, w := range []*waiter{third, first, second} {
		_, ok := d.look(w)
		require.False(t, ok)
	}
	require.Empty(t, told(d, names))

	d.give(taken[0], true)
	require.Equal(t, []string{"third"}, told(d, names))
	_, ok := d.look(first)
	require.False(t, ok, "it has not been told")
	newcomer := wait("newcomer", false)
	_, ok = d.look(newcomer)
	require.False(t, ok, "others have waited")
	_, ok = d.look(third)
	require.True(t, ok)
	require.Equal(t, []string{"first"}, told(d, names), "there may be one more")
	_, ok = d.look(first)
	require.False(t, ok)
	require.Contains(t, told(d, names), "newcomer", "it was sent away before it had looked")

	d.give(taken[1], true)
	d.leave("a", first)
	require.Contains(t, told(d, names), "second", "who leaves hands on what it was told")
	_, ok = d.look(second)
	require.True(t, ok)
	require.Equal(t, []string{"newcomer"}, queue(d, names))
}

// Among steps of the same kind those of turns with a higher priority come first, and then those
// that came first. What was begun comes before all of them. Nothing else depends on it.
//
// Req: OC-28
func TestLine_HigherPrioritiesComeFirst(t *testing.T) {
	d, names := newDesk(1, 1), map[*waiter]string{}
	for _, s := range []struct {
		late     bool
		priority int
	}{{false, 5}, {false, 0}, {true, 5}, {false, 10}, {false, 5}, {true, 9}, {true, 9}, {false, 0}} {
		w := newWaiter(s.late, false)
		w.priority = s.priority
		names[w] = fmt.Sprint(len(names), " late ", s.late, ", ", s.priority)
		d.join("a", w)
	}
	require.Equal(t, []string{
		"5 late true, 9", "6 late true, 9", "2 late true, 5",
		"3 late false, 10", "0 late false, 5", "4 late false, 5", "1 late false, 0", "7 late false, 0",
	}, queue(d, names))
	for len(d.agents["a"].waiting) > 0 { // each gets the place in this order, whoever else looks
		first := d.agents["a"].waiting[0]
		in, ok := d.look(first)
		require.True(t, ok, names[first])
		for _, w := range d.agents["a"].waiting {
			_, ok := d.look(w)
			require.False(t, ok)
		}
		d.give(in, true)
	}
}

// One that wants a certain instance holds up nobody that has found a place elsewhere.
func TestLine_WhoIsPickyHoldsUpNobody(t *testing.T) {
	d := newDesk(2, 1)
	var taken []registry.Instance
	for range 2 {
		in, _, ok := d.seat("")
		require.True(t, ok)
		taken = append(taken, in)
	}
	named, other := newWaiter(true, true), newWaiter(false, false)
	list, _ := d.roster.List("a")
	wants := selection.Input{Policy: selection.Policy{Strategy: selection.Manual, Instance: taken[1].ID}}
	for _, w := range []*waiter{named, other} {
		d.join("a", w)
	}
	_, _, ok := d.take("a", list, wants, named)
	require.False(t, ok)
	_, ok = d.look(other)
	require.False(t, ok)

	d.give(taken[0], true)
	<-named.again
	_, _, ok = d.take("a", list, wants, named)
	require.False(t, ok)
	<-other.again
	in, ok := d.look(other)
	require.True(t, ok)
	require.Equal(t, taken[0].ID, in.ID)
	require.True(t, d.asks("a", named))
}

// A step waits for longer than the patience while an instance works, for then there will be a
// place; and no longer than that once none does.
func TestDispatcher_WaitsWhileSomebodyWorks(t *testing.T) {
	const wait = time.Second
	working, release := make(chan struct{}, 1), make(chan struct{})
	_, address := serve(t, func(s troupev1.AgentService_ExecuteStepServer) error {
		if err := s.SendHeader(nil); err != nil {
			return err
		}
		working <- struct{}{}
		<-release
		return result(s, "done")
	})
	busy := instance("1", address, 1)
	r := newRig(t, patience, busy)
	hasty := r.WithPolicy(selection.Policy{}) // for whom the first step is at work, however long it took to begin
	hasty.wait = wait
	ended := make(chan error, 2)
	execute := func(d *Dispatcher) {
		_, err := d.Execute(t.Context(), request(), nil, new(heard).handler())
		ended <- err
	}
	go execute(r.Dispatcher)
	receive(t, working)
	go execute(hasty)
	time.AfterFunc(wait+wait/10, func() { close(release) }) // just behind the end of the patience, and long before the next one
	require.NoError(t, receive(t, ended))
	require.NoError(t, receive(t, ended))

	_, err := hasty.Execute(t.Context(), request(), []registry.Instance{busy}, new(heard).handler())
	require.Equal(t, failure.NoWorker, failure.ModeOf(err), "%v", err)
}
