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

// queueFixture is a queue with the slots of n instances, and the list of these instances.
type queueFixture struct {
	*Queue
	cache *instances.Cache
}

func newQueueFixture(n, capacity int) *queueFixture {
	d := &queueFixture{New(selection.Decide), instances.New(zap.NewNop(), func(bool, map[string]bool) {})}
	known := make([]registry.Instance, n)
	for i := range known {
		known[i] = instance(fmt.Sprintf("%04d", i), fmt.Sprint(i, ":1"), capacity)
	}
	d.cache.Apply(registry.Update{List: &known})
	return d
}

// takeSlot reserves a slot for one step.
func (q *queueFixture) takeSlot(strategy selection.Strategy) (registry.Instance, selection.Decision, bool) {
	list, _ := q.cache.List("a")
	return q.TakeSlot("a", list, selection.Input{Policy: selection.Policy{Strategy: strategy}, Session: "s", Counter: q.NextCounter("a", strategy)},
		NewWaiter(Order{}))
}

// Round robin gives each instance the same number of steps, no matter how many steps arrive at once.
// Req: OC-17
func TestQueue_SpreadsStepsEvenly(t *testing.T) {
	const workers, each, n = 8, 100, 4
	d := newQueueFixture(n, workers*each)
	var mu sync.Mutex
	count := map[string]int{}
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for range each {
				in, _, ok := d.takeSlot(selection.RoundRobin)
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

// Steps that arrive at the same moment do not all go to the same idle instance.
func TestQueue_SpreadsSimultaneousSteps(t *testing.T) {
	d := newQueueFixture(2, 4)
	for range 4 {
		first, _, _ := d.takeSlot(selection.LoadBalanced)
		second, decision, _ := d.takeSlot(selection.LoadBalanced)
		require.NotEqual(t, first.ID, second.ID, decision.Reason)
	}
	_, decision, ok := d.takeSlot(selection.LoadBalanced)
	require.False(t, ok)
	require.Equal(t, "no instance can take it: 2 are full", decision.Reason)
	require.True(t, decision.MaySucceedLater)
}

// The counts of steps in flight are kept when instances disappear and return.
func TestQueue_KeepsInFlightCountsWhenInstancesChange(t *testing.T) {
	d := newQueueFixture(1, 2)
	in, _, ok := d.takeSlot("")
	require.True(t, ok)
	key := in.Key()
	d.cache.Apply(registry.Update{Delete: &key})
	_, decision, ok := d.takeSlot("")
	require.False(t, ok)
	require.Equal(t, "no instance is known", decision.Reason)

	in.Incarnation++
	d.cache.Apply(registry.Update{Put: &in})
	_, decision, ok = d.takeSlot("")
	require.True(t, ok)
	require.EqualValues(t, 1, decision.Input.Candidates[0].InFlight)
	_, _, ok = d.takeSlot("")
	require.False(t, ok)

	waiting := NewWaiter(Order{})
	d.Join("a", waiting)
	_, _, ok = d.TakeSlot("a", d.agents["a"].instanceList, selection.Input{}, waiting)
	require.False(t, ok)
	d.ReleaseSlot(in, false)
	require.Empty(t, waiting.wakeChan, "a slot of a rejected step wakes no other step")
	d.ReleaseSlot(in, true)
	<-waiting.wakeChan
	d.Leave("a", waiting)
	_, _, ok = d.takeSlot("")
	require.True(t, ok)
}

// The benchmark measures one routing decision. This includes reading the cache, reserving the slot and recording
// the decision.
func BenchmarkQueue(b *testing.B) {
	for _, strategy := range selection.Strategies() {
		for _, n := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", strategy, n), func(b *testing.B) {
				d := newQueueFixture(n, 4)
				policy := selection.Policy{
					Strategy: strategy, Instance: "0003",
					Weights: map[string]int{"v2": 10}, Priorities: map[string]int{"v2": 10},
				}
				b.ReportAllocs()
				for b.Loop() {
					list, _ := d.cache.List("a")
					in, _, ok := d.TakeSlot("a", list, selection.Input{Policy: policy, Session: "s", Counter: d.NextCounter("a", strategy)}, NewWaiter(Order{}))
					if !ok {
						b.Fatal("no instance")
					}
					d.ReleaseSlot(in, true)
				}
			})
		}
	}
}

// instance returns an instance of agent a.
func instance(id, address string, capacity int) registry.Instance {
	return registry.Instance{ID: id, Agent: "a", Address: address, State: lifecycle.Ready, Capacity: capacity}
}
