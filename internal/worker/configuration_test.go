package worker_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/ownership"
	"github.com/troupe-dev/troupe/test/loopback"
)

// configuredAgent returns the configuration of an agent that answers with the stored tone and then sets another
// tone.
func configuredAgent(p ownership.Protocol, tone string) agent.Config {
	return agent.Config{Name: "a", Config: p, Model: scripted.New(), Handlers: []hook.Handler{
		hook.BeforeAgent(func(_ context.Context, t *hook.Turn) (string, error) {
			was, _ := t.Config().Get("tone")
			return "It was " + string(was) + ".", t.Config().Set("tone", tone)
		}),
	}}
}

func (e *workerEnv) storedConfig(t *testing.T) memory.Configuration {
	t.Helper()
	c, err := e.memory.GetConfig(t.Context(), "a")
	require.NoError(t, err)
	return c
}

// An agent reads and writes its configuration in a step. Its shutdown stores the configuration, and the next
// instance starts with it. The registration contains the conflict protocol.
// Req: SO-11
func TestWorker_StoresTheConfigurationOfItsAgent(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, configuredAgent(ownership.Reject, "kind"))
	s.Until(func() bool { return s.Known[r.registryKey()].ConfigProtocol == ownership.Reject })
	_, result := readStep(t, r.execute(t.Context(), t, s.beginTurn(t, "a", "s1")))
	require.Equal(t, "It was .", result.GetText())
	require.Zero(t, s.storedConfig(t).Version, "the configuration is stored only at shutdown")
	require.NoError(t, r.stop())
	stored := s.storedConfig(t)
	require.Equal(t, map[string]json.RawMessage{"tone": json.RawMessage(`"kind"`)}, stored.Values)

	r = s.start(t, configuredAgent(ownership.Reject, "curt"))
	_, result = readStep(t, r.execute(t.Context(), t, s.beginTurn(t, "a", "s2")))
	require.Equal(t, `It was "kind".`, result.GetText())

	// Another instance has written first. The protocol decides which change wins, not the order of the writes.
	_, err := s.memory.PutConfig(t.Context(), memory.ConfigChange{
		Agent: "a", Base: stored.Version, Protocol: ownership.Reject, Delta: map[string]json.RawMessage{"limit": json.RawMessage(`3`)},
	})
	require.NoError(t, err)
	require.NoError(t, r.stop())
	require.Equal(t, map[string]json.RawMessage{"tone": json.RawMessage(`"kind"`), "limit": json.RawMessage(`3`)}, s.storedConfig(t).Values)
	lost := r.logs.FilterMessage("a step of the lifecycle failed").All()
	require.Len(t, lost, 1)
	require.Contains(t, lost[0].ContextMap()["error"], "the changes of the configuration are lost")
}

// Req: SO-11
func TestWorker_MergesTheConfigurationsOfItsInstances(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, configuredAgent(ownership.Merge, "kind"))
	_, result := readStep(t, r.execute(t.Context(), t, s.beginTurn(t, "a", "s1")))
	require.Nil(t, result.GetFailure())
	_, err := s.memory.PutConfig(t.Context(), memory.ConfigChange{
		Agent: "a", Protocol: ownership.Merge, Delta: map[string]json.RawMessage{"limit": json.RawMessage(`3`)},
	})
	require.NoError(t, err)
	require.NoError(t, r.stop())
	require.Len(t, s.storedConfig(t).Values, 2)
	require.Empty(t, r.logs.FilterMessage("a step of the lifecycle failed").All())
}

// A worker does not start if it cannot load its agent's configuration.
func TestWorker_DoesNotStartWhenItsConfigurationCannotBeLoaded(t *testing.T) {
	s := newWorkerEnv(t)
	s.memoryAddr = loopback.Address(t) // no server listens there
	c := configuredAgent(ownership.Merge, "kind")
	c.StartTimeout = 300 * time.Millisecond
	err := s.startWithoutWaiting(t, c).awaitEnd(t)
	require.True(t, failure.Is(err, failure.SystemNetwork, failure.SystemTimeout, failure.AgentTimeout), "%v", err)
}
