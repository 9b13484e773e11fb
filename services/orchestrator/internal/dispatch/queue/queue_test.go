package queue

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// desk is the places at n instances, and the roster that knows these.
type desk struct {
	*Queue
	roster *instances.Cache
}

func newDesk(n, capacity int) *desk {
	d := &desk{New(selection.Decide), instances.New(zap.NewNop(), func(bool, map[string]bool) {})}
	known := make([]registry.Instance, n)
	for i := range known {
		known[i] = instance(fmt.Sprintf("%04d", i), fmt.Sprint(i, ":1"), capacity)
	}
	d.roster.Apply(registry.Update{List: &known})
	return d
}

// seat gives one step a place.
func (d *desk) seat(strategy selection.Strategy) (registry.Instance, selection.Decision, bool) {
	list, _ := d.roster.List("a")
	return d.Take("a", list, selection.Input{Policy: selection.Policy{Strategy: strategy}, Session: "s", Counter: d.NextCounter("a", strategy)}, NewWaiter(Order{}))
}

// However many steps ask at once, each instance has the same number of turns.
//
// Req: OC-17
func TestQueue_TakeTurnsEvenly(t *testing.T) {
	const workers, each, n = 8, 100, 4
	d := newDesk(n, workers*each)
	var mu sync.Mutex
	count := map[string]int{}
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for range each {
				in, _, ok := d.seat(selection.RoundRobin)
				mu.Lock()
				count[in.ID]++
				mu.Unlock()
				if !ok {
					return
				}
			}
		})
	}
	running.Wait()
	require.Equal(t, map[string]int{"0000": 200, "0001": 200, "0002": 200, "0003": 200}, count)
}

// Steps that come at the same moment do not all run to the one that is idle.
func TestQueue_CountWhatWasJustGiven(t *testing.T) {
	d := newDesk(2, 4)
	for range 4 {
		first, _, _ := d.seat(selection.LoadBalanced)
		second, decision, _ := d.seat(selection.LoadBalanced)
		require.NotEqual(t, first.ID, second.ID, decision.Reason)
	}
	_, decision, ok := d.seat(selection.LoadBalanced)
	require.False(t, ok)
	require.Equal(t, "no instance can take it: 2 are full", decision.Reason)
	require.True(t, decision.Later)
}

// What is in flight stays known while instances come, go and come again.
func TestQueue_OutliveAChangeOfTheRoster(t *testing.T) {
	d := newDesk(1, 2)
	in, _, ok := d.seat("")
	require.True(t, ok)
	key := in.Key()
	d.roster.Apply(registry.Update{Delete: &key})
	_, decision, ok := d.seat("")
	require.False(t, ok)
	require.Equal(t, "no instance is known", decision.Reason)

	in.Incarnation++
	d.roster.Apply(registry.Update{Put: &in})
	_, decision, ok = d.seat("")
	require.True(t, ok)
	require.EqualValues(t, 1, decision.Input.Candidates[0].InFlight)
	_, _, ok = d.seat("")
	require.False(t, ok)

	waiting := NewWaiter(Order{})
	d.Join("a", waiting)
	_, _, ok = d.Take("a", d.agents["a"].list, selection.Input{}, waiting)
	require.False(t, ok)
	d.Release(in, false)
	require.Empty(t, waiting.woken, "one that was refused is nothing to wait for")
	d.Release(in, true)
	<-waiting.woken
	d.Leave("a", waiting)
	_, _, ok = d.seat("")
	require.True(t, ok)
}

// One decision with all that belongs to it: the look at the roster, the place, the record.
func BenchmarkQueue(b *testing.B) {
	for _, strategy := range selection.Strategies() {
		for _, n := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", strategy, n), func(b *testing.B) {
				d := newDesk(n, 4)
				policy := selection.Policy{
					Strategy: strategy, Instance: "0003",
					Weights: map[string]int{"v2": 10}, Priorities: map[string]int{"v2": 10},
				}
				b.ReportAllocs()
				for b.Loop() {
					list, _ := d.roster.List("a")
					in, _, ok := d.Take("a", list, selection.Input{Policy: policy, Session: "s", Counter: d.NextCounter("a", strategy)}, NewWaiter(Order{}))
					if !ok {
						b.Fatal("no instance")
					}
					d.Release(in, true)
				}
			})
		}
	}
}

// instance is one of agent a.
func instance(id, address string, capacity int) registry.Instance {
	return registry.Instance{ID: id, Agent: "a", Address: address, State: lifecycle.Ready, Capacity: capacity}
}
