package dispatch

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
	"github.com/troupe-dev/troupe/test/loopback"
)

// choiceHandler returns a handler that stores the routing decision in d. It requires that the decision arrives
// before the step starts.
func choiceHandler(t *testing.T, d *selection.Decision) (Handler, *callRecorder) {
	t.Helper()
	h := &callRecorder{}
	handler := h.handler()
	handler.OnChosen = func(why selection.Decision) error {
		require.Empty(t, h.started)
		*d = why
		return nil
	}
	return handler, h
}

// The decision says which instance gets the step and why. It also says what happened at the instances that were
// tried before.
func TestDispatcher_ReportsWhyAnInstanceWasChosen(t *testing.T) {
	_, first := serveAgent(t, func(troupev1.AgentService_ExecuteStepServer) error {
		return failure.New(failure.InstancePaused, "test", "it is paused")
	})
	_, third := serveAgent(t, completeStep)
	lost := instance("0", third, 4)
	r := newDispatcherFixture(t, testTimeout, lost, instance("1", first, 4), instance("2", loopback.Address(t), 4), instance("3", third, 4))
	var d selection.Decision
	handler, h := choiceHandler(t, &d)
	_, err := r.Execute(t.Context(), stepRequest(), []registry.Instance{lost}, handler)
	require.NoError(t, err)
	require.Equal(t, []string{"3"}, h.started)
	require.Equal(t, "3", d.Target)
	require.Equal(t, selection.RoundRobin, d.Strategy)
	require.Equal(t, "3 is the only one that can take it; 1 lost it before, 1 refused it, 1 does not answer", d.Reason)
	for i, want := range []selection.Rejected{{ID: "0", Availability: selection.Lost}, {
		ID: "1", Availability: selection.RejectedStep,
		Detail: "it is paused",
	}} {
		require.Equal(t, want, d.Rejected[i])
	}
	require.Equal(t, selection.Unresponsive, d.Rejected[2].Availability)
	require.Equal(t, d, selection.Decide(d.Input), "it can be made again")
}

func TestDispatcher_OnChosenErrorEndsTheStep(t *testing.T) {
	_, address := serveAgent(t, completeStep)
	r := newDispatcherFixture(t, testTimeout, instance("1", address, 4))
	h, enough := new(callRecorder), errors.New("enough")
	handler := h.handler()
	handler.OnChosen = func(selection.Decision) error { return enough }
	_, err := r.Execute(t.Context(), stepRequest(), nil, handler)
	require.ErrorIs(t, err, enough)
	require.Empty(t, h.started)
}

func TestDispatcher_FollowsThePolicyOfTheStep(t *testing.T) {
	_, address := serveAgent(t, completeStep)
	var known []registry.Instance
	for _, id := range []string{"1", "2", "3", "4"} {
		known = append(known, instance(id, address, 4))
	}
	known[3].Version = "v2"
	r := newDispatcherFixture(t, 50*time.Millisecond, known...)
	took := func(policy selection.Policy, session string) string {
		req := stepRequest()
		req.SessionId = session
		var h callRecorder
		_, err := r.WithPolicy(policy).Execute(t.Context(), req, nil, h.handler())
		require.NoError(t, err)
		return h.started[0]
	}
	home := took(selection.Policy{Strategy: selection.Sticky}, "s-1")
	spread := map[string]int{}
	for range 8 {
		require.Equal(t, home, took(selection.Policy{Strategy: selection.Sticky}, "s-1"))
		require.Equal(t, "3", took(selection.Policy{Strategy: selection.Manual, Instance: "3"}, "s"))
		require.Equal(t, "4", took(selection.Policy{Strategy: selection.Priority, Priorities: map[string]int{"v2": 1}}, "s"))
		spread[took(selection.Policy{}, "s-1")]++
	}
	require.Equal(t, map[string]int{"1": 2, "2": 2, "3": 2, "4": 2}, spread, "other strategies use up no turn")

	_, err := r.WithPolicy(selection.Policy{Strategy: selection.Manual, Instance: "9"}).Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler())
	require.Equal(t, failure.NoWorker, failure.ModeOf(err), "%v", err)
	require.ErrorContains(t, err, "the workflow names 9, which is not known")
}

// When the policy names an instance, only that instance is started.
func TestDispatcher_StartsOnlyTheNamedInstance(t *testing.T) {
	named, one := newUnstartedWorker(t, "1")
	other, two := newUnstartedWorker(t, "2")
	r := newDispatcherFixture(t, testTimeout, one, two)
	t.Cleanup(r.Close)
	named.started <- nil
	var h callRecorder
	_, err := r.WithPolicy(selection.Policy{Strategy: selection.Manual, Instance: "1"}).Execute(t.Context(), stepRequest(), nil, h.handler())
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, h.started)
	require.EqualValues(t, 1, named.starts.Load())
	require.Zero(t, other.starts.Load())
}

// Only an instance that registered the needed capabilities gets the step.
func TestDispatcher_SelectsAnInstanceWithTheNeededCapabilities(t *testing.T) {
	_, address := serveAgent(t, completeStep)
	plain, able := instance("0", address, 4), instance("1", address, 4)
	able.Capabilities = []string{"gpu", "maps"}
	r := newDispatcherFixture(t, 300*time.Millisecond, plain, able)
	var d selection.Decision
	handler, h := choiceHandler(t, &d)
	_, err := r.WithPolicy(selection.Policy{Strategy: selection.Capability, Needs: []string{"gpu"}}).Execute(t.Context(), stepRequest(), nil, handler)
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, h.started)
	require.Equal(t, "1 has all that the step needs: gpu; 1 has nothing of what the step needs", d.Reason)
	require.Equal(t, d, selection.Decide(d.Input), "it can be made again")

	handler, _ = choiceHandler(t, &d)
	_, err = r.WithPolicy(selection.Policy{Strategy: selection.Capability, Needs: []string{"tpu"}}).Execute(t.Context(), stepRequest(), nil, handler)
	require.True(t, failure.Is(err, failure.NoWorker), "%v", err)
	require.ErrorContains(t, err, "2 have nothing of what the step needs")
}
