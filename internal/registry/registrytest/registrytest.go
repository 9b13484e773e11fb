// Package registrytest is the test suite that every implementation of package registry must pass. Other tests use
// its Observer to follow a watch.
package registrytest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Run runs the suite. open returns an empty registry.
func Run(t *testing.T, open func(t *testing.T) registry.Registry) {
	for name, test := range map[string]func(*testing.T, registry.Registry){
		"WatchListsInstances":             testList,
		"WatchReportsChangesInOrder":      testChanges,
		"WatchMissesNothing":              testConcurrentChanges,
		"WatchEndsWithItsContext":         testWatchEnds,
		"RegisterRejectsADuplicate":       testDuplicate,
		"RegisterRejectsInvalidInstances": testRegisterRejectsInvalid,
		"RegisterEndsWithItsContext":      testRegisterEnds,
		"IncarnationGrows":                testIncarnation,
		"CloseMayBeRepeated":              testClose,
		"SetStateFailsAfterClose":         testSetStateAfterClose,
		"CloseLeavesASuccessorInPlace":    testCloseAfterSuccessor,
		"OtherAgentsAreUnaffected":        testAgents,
		"WatchReportsDesiredStates":       testDesiredStates,
		"WantTakesManyStates":             testManyDesiredStates,
		"TheLastDesiredStateWins":         testConcurrentDesiredStates,
		"ForgetKeepsRegisteredInstances":  testRemoveDesired,
		"DesiredStateOfAWholeAgent":       testDesiredStateOfAgent,
		"DesiresAreNoRegistrations":       testDesiredStatesAreNotInstances,
		"WatchDesiresEndsWithItsContext":  testDesiredWatchEnds,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// NewInstance returns a valid instance of an agent in state INITIALIZING, without capabilities and tools.
func NewInstance(agent, id string) registry.Instance {
	return registry.Instance{
		ID: id, Agent: agent, Address: "127.0.0.1:7402", Version: "1.2.0", Description: "Finds facts.",
		State: lifecycle.Initializing, Capacity: 16, Started: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC),
	}
}

// Register registers the instance and closes it when the test ends.
func Register(t *testing.T, r registry.Registrar, in registry.Instance) registry.Registration {
	t.Helper()
	reg, err := r.Register(t.Context(), in)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = reg.Close(ctx) // some tests stop the registry first
	})
	return reg
}

func testList(t *testing.T, r registry.Registry) {
	require.Empty(t, Observe(t, r).NextList())
	want := NewInstance("research", "a")
	said := want
	said.Description = " Finds\x1b\n facts."
	Register(t, r, said)

	got := Observe(t, r).NextList()
	require.Len(t, got, 1)
	require.Positive(t, got[0].Incarnation)
	want.Incarnation = got[0].Incarnation
	require.Empty(t, cmp.Diff([]registry.Instance{want}, got))
}

func testChanges(t *testing.T, r registry.Registry) {
	o := Observe(t, r)
	require.Empty(t, o.NextList())

	in := NewInstance("research", "a")
	reg := Register(t, r, in)
	in.Incarnation = o.NextPut().Incarnation
	for _, s := range []lifecycle.State{lifecycle.Ready, lifecycle.Paused, lifecycle.Ready, lifecycle.ShuttingDown} {
		require.NoError(t, reg.SetState(t.Context(), s))
		in.State = s
		require.Empty(t, cmp.Diff(in, o.NextPut()))
	}
	require.NoError(t, reg.Close(t.Context()))
	require.Equal(t, in.Key(), o.NextDelete())
}

// testConcurrentChanges starts watches while instances register, change and leave. Once a watch has seen the
// instance that registers last, it must know exactly the remaining instances.
func testConcurrentChanges(t *testing.T, r registry.Registry) {
	const writers, rounds, observers = 8, 4, 4
	var writing sync.WaitGroup
	left := make([]registry.Instance, writers)
	errs := make([]error, writers)
	for i := range writers {
		writing.Go(func() { left[i], errs[i] = registerRepeatedly(t, r, fmt.Sprintf("w%d", i), rounds) })
	}
	watching := make([]*Observer, observers)
	for i := range watching {
		watching[i] = Observe(t, r)
		watching[i].Next()
	}
	writing.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	last := NewInstance("research", "last")
	Register(t, r, last)

	want := map[registry.Key]lifecycle.State{last.Key(): last.State}
	for _, in := range left {
		want[in.Key()] = in.State
	}
	for _, o := range watching {
		o.Until(func() bool { _, ok := o.Known[last.Key()]; return ok })
		got := map[registry.Key]lifecycle.State{}
		for key, in := range o.Known {
			got[key] = in.State
		}
		require.Empty(t, cmp.Diff(want, got))
	}
}

// registerRepeatedly registers an instance and closes its registration several times. It leaves the last
// registration READY.
func registerRepeatedly(t *testing.T, r registry.Registry, id string, rounds int) (registry.Instance, error) {
	in := NewInstance("research", id)
	for round := range rounds {
		reg, err := r.Register(t.Context(), in)
		if err != nil {
			return in, err
		}
		t.Cleanup(func() { _ = reg.Close(context.WithoutCancel(t.Context())) })
		if err := reg.SetState(t.Context(), lifecycle.Ready); err != nil {
			return in, err
		}
		if round == rounds-1 {
			break
		}
		if err := reg.Close(t.Context()); err != nil {
			return in, err
		}
	}
	in.State = lifecycle.Ready
	return in, nil
}

func testWatchEnds(t *testing.T, r registry.Registry) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := r.Watch(ctx, func(registry.Update) { calls++; cancel() })
	require.NoError(t, err)
	require.Equal(t, 1, calls)
}

// testRegisterRejectsInvalid checks that Register rejects what readers would ignore.
func testRegisterRejectsInvalid(t *testing.T, r registry.Registry) {
	for want, change := range map[string]func(*registry.Instance){
		`"" names no agent`:         func(in *registry.Instance) { in.Agent = "" },
		`"a/b" names no agent`:      func(in *registry.Instance) { in.Agent = "a/b" },
		`"" is no id`:               func(in *registry.Instance) { in.ID = "" },
		`"a/b" is no id`:            func(in *registry.Instance) { in.ID = "a/b" },
		"1 to 10000":                func(in *registry.Instance) { in.Capacity = registry.MaxCapacity + 1 },
		"the capacity is 0":         func(in *registry.Instance) { in.Capacity = 0 },
		"want host:port":            func(in *registry.Instance) { in.Address = ":7402" },
		`"h:x" is no address`:       func(in *registry.Instance) { in.Address = "h:x" },
		"the description has 1025":  func(in *registry.Instance) { in.Description = strings.Repeat("d", registry.MaxTextBytes+1) },
		"the version has 1 bytes":   func(in *registry.Instance) { in.Version = "\xff" },
		"is no capability":          func(in *registry.Instance) { in.Capabilities = []string{"A b"} },
		"there are 513 tools":       func(in *registry.Instance) { in.Tools = make([]registry.Tool, registry.MaxTools+1) },
		"a tool has a name of 0":    func(in *registry.Instance) { in.Tools = []registry.Tool{{}} },
		`tool "t": "A b" is no cap`: func(in *registry.Instance) { in.Tools = []registry.Tool{{Name: "t", Capabilities: []string{"A b"}}} },
	} {
		in := NewInstance("research", "a")
		change(&in)
		_, err := r.Register(t.Context(), in)
		require.ErrorContains(t, err, want)
		require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
	}
	require.Empty(t, Observe(t, r).NextList())
}

func testDuplicate(t *testing.T, r registry.Registry) {
	reg := Register(t, r, NewInstance("research", "a"))
	_, err := r.Register(t.Context(), NewInstance("research", "a"))
	require.True(t, failure.Is(err, failure.AgentState), "got %v", err)
	require.NoError(t, reg.SetState(t.Context(), lifecycle.Ready), "the first one must be untouched")
	require.Len(t, Observe(t, r).NextList(), 1)
}

func testRegisterEnds(t *testing.T, r registry.Registry) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.Register(ctx, NewInstance("research", "a"))
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, Observe(t, r).NextList())
}

func testIncarnation(t *testing.T, r registry.Registry) {
	o := Observe(t, r)
	o.Next()
	var before int64
	for range 3 {
		reg := Register(t, r, NewInstance("research", "a"))
		in := o.NextPut()
		require.Greater(t, in.Incarnation, before)
		before = in.Incarnation
		require.NoError(t, reg.Close(t.Context()))
		o.NextDelete()
	}
}

func testClose(t *testing.T, r registry.Registry) {
	reg := Register(t, r, NewInstance("research", "a"))
	var closing sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		closing.Go(func() { errs[i] = reg.Close(t.Context()) })
	}
	closing.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.NoError(t, reg.Close(t.Context()))
	require.Empty(t, Observe(t, r).NextList())
}

func testSetStateAfterClose(t *testing.T, r registry.Registry) {
	reg := Register(t, r, NewInstance("research", "a"))
	require.NoError(t, reg.Close(t.Context()))
	err := reg.SetState(t.Context(), lifecycle.Ready)
	require.True(t, failure.Is(err, failure.AgentState), "got %v", err)
	require.Empty(t, Observe(t, r).NextList())
}

func testCloseAfterSuccessor(t *testing.T, r registry.Registry) {
	first := Register(t, r, NewInstance("research", "a"))
	require.NoError(t, first.Close(t.Context()))
	Register(t, r, NewInstance("research", "a"))
	require.NoError(t, first.Close(t.Context()))
	require.True(t, failure.Is(first.SetState(t.Context(), lifecycle.Ready), failure.AgentState))
	list := Observe(t, r).NextList()
	require.Len(t, list, 1)
	require.Equal(t, lifecycle.Initializing, list[0].State)
}

func testAgents(t *testing.T, r registry.Registry) {
	a := Register(t, r, NewInstance("research", "one"))
	Register(t, r, NewInstance("synthesis", "one"))
	o := Observe(t, r)
	require.Len(t, o.NextList(), 2)
	require.NoError(t, a.Close(t.Context()))
	require.Equal(t, registry.Key{Agent: "research", ID: "one"}, o.NextDelete())
}
