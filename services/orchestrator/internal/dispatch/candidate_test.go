package dispatch

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/choice"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// capableInstance returns an instance with the given capabilities.
func capableInstance(id, address string, capacity int, capabilities ...string) registry.Instance {
	in := instance(id, address, capacity)
	in.Capabilities = capabilities
	return in
}

// The candidate of an agent shows the availability of its instances and the load of their running steps.
func TestDispatcher_AgentCandidateReflectsItsInstances(t *testing.T) {
	var during choice.Candidate
	var r *dispatcherFixture
	_, address := serveAgent(t, func(s troupev1.AgentService_ExecuteStepServer) error {
		during = r.AgentCandidate("a")
		return completeStep(s)
	})
	r = newDispatcherFixture(t, testTimeout, capableInstance("1", address, 2, "gpu"), capableInstance("2", address, 2, "maps"))
	require.Equal(t, choice.Candidate{
		ID: "a", Name: "a", Type: choice.Agent, Capabilities: []string{"gpu", "maps"}, Metadata: map[string]string{"instances": "2"}, Available: true,
	}, r.AgentCandidate("a"))
	h := &callRecorder{}
	_, err := r.Execute(t.Context(), stepRequest(), nil, h.handler())
	require.NoError(t, err)
	require.InDelta(t, 0.25, during.Load, 0, "one of four places")
	require.Zero(t, r.AgentCandidate("a").Load)

	r.backoffs.Add(capableInstance("1", address, 2), unresponsiveBackoff, errors.New("it is silent"))
	require.Equal(t, []string{"maps"}, r.AgentCandidate("a").Capabilities)
	r.backoffs.Add(capableInstance("2", address, 2), unresponsiveBackoff, failure.New(failure.InstanceFull, "test", "it is full"))
	require.True(t, r.AgentCandidate("a").Available, "it is only full")
	paused := capableInstance("2", address, 2, "maps")
	paused.State = lifecycle.Paused
	r.cache.Apply(registry.Update{Put: &paused})
	candidate := r.AgentCandidate("a")
	require.False(t, candidate.Available)
	require.Equal(t, selection.Unresponsive, candidate.Availability)
	require.Equal(t, []string{"gpu", "maps"}, candidate.Capabilities, "what it could")
	require.Equal(t, selection.Absent, r.AgentCandidate("nobody").Availability)
}

// A step gets the tools that it may use at its instance. An error of SelectTools ends the step before it starts.
func TestDispatcher_SendsToolsForTheChosenInstance(t *testing.T) {
	var got []*troupev1.AllowedTools
	_, second := serveAgent(t, completeStep)
	_, first := serveAgent(t, func(troupev1.AgentService_ExecuteStepServer) error {
		return failure.New(failure.InstanceFull, "test", "it is full")
	})
	r := newDispatcherFixture(t, testTimeout, instance("1", first, 4), instance("2", second, 4))
	h := &callRecorder{}
	handler := h.handler()
	handler.SelectTools = func(in registry.Instance) (*troupev1.AllowedTools, error) {
		tools := &troupev1.AllowedTools{Names: []string{"of-" + in.ID}}
		got = append(got, tools)
		return tools, nil
	}
	req := stepRequest()
	_, err := r.Execute(t.Context(), req, nil, handler)
	require.NoError(t, err)
	require.Len(t, got, 2, "the first instance rejected it")
	require.Equal(t, []string{"of-2"}, req.GetTools().GetNames())

	none := failure.New(failure.AgentContract, "test", "none of its tools fits")
	handler.SelectTools = func(registry.Instance) (*troupev1.AllowedTools, error) { return nil, none }
	h.started = nil
	_, err = r.Execute(t.Context(), stepRequest(), nil, handler)
	require.ErrorIs(t, err, none)
	require.Empty(t, h.started)
	require.Zero(t, r.AgentCandidate("a").Load, "its place is free again")
}
