package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/ownership"
	"github.com/troupe-dev/troupe/pkg/tool"
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
	c.Lifecycle.Timeout = 300 * time.Millisecond
	err := s.startWithoutWaiting(t, c).awaitEnd(t)
	require.True(t, failure.Is(err, failure.SystemNetwork, failure.SystemTimeout, failure.AgentTimeout), "%v", err)
}

// The hooks of an agent find its configuration loaded, can read the configuration of another agent, and may change their own
// when the worker stops.
//
// Req: LC-7, LC-37
func TestWorker_HooksReadAndKeepTheConfiguration(t *testing.T) {
	s := newWorkerEnv(t)
	_, err := s.memory.PutConfig(t.Context(), memory.ConfigChange{
		Agent: "other", Protocol: ownership.Merge, Delta: map[string]json.RawMessage{"limit": json.RawMessage("3")},
	})
	require.NoError(t, err)
	starts := 0
	newConfig := func() agent.Config {
		return agent.Config{
			Name: "a", Config: ownership.Merge, Model: scripted.New(), Lifecycle: agent.Lifecycle{
				Retries: 1, OnStart: func(ctx context.Context, a hook.Agent) error {
					if starts++; starts == 1 {
						return errors.New("not yet")
					}
					other, err := a.Config.LoadAgent(ctx, "other")
					if err != nil {
						return err
					}
					_, found := a.Config.Get("last")
					return a.State.Set("_seen", []any{string(other["limit"]), found})
				},
				OnStop: func(_ context.Context, a hook.Agent) error {
					seen, _ := a.State.Get("_seen")
					return a.Config.Set("last", seen)
				},
			},
		}
	}
	for _, want := range []string{`["3",false]`, `["3",true]`} {
		r := s.start(t, newConfig())
		require.NoError(t, r.stop())
		require.JSONEq(t, want, string(s.storedConfig(t).Values["last"]))
	}
	require.Equal(t, 3, starts, "the first start was retried")
}

// An agent that keeps a failed start stays until someone shuts it down, so that it can be looked at.
//
// Req: LC-11
func TestWorker_KeepsAFailedStart(t *testing.T) {
	s := newWorkerEnv(t)
	var log []string
	r := s.startWithoutWaiting(t, agent.Config{
		Name: "a", Model: scripted.New(),
		Plugins: []hook.Plugin{{Name: "one", Stop: func(context.Context, hook.Agent) error { log = append(log, "stopped"); return nil }}},
		Lifecycle: agent.Lifecycle{KeepFailed: true, OnStart: func(context.Context, hook.Agent) error {
			return failure.New(failure.ResourceAPI, "db", "the database is away")
		}},
	})
	awaitCondition(t, "the log has the failed start", func() bool {
		return r.logs.FilterMessage("the start failed; the instance keeps what it acquired until Shutdown").Len() == 1
	})
	require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_INITIALIZING, r.status(t).GetState())
	_, err := r.Startup(t.Context(), &troupev1.StartupRequest{})
	require.ErrorContains(t, err, "the database is away")
	_, err = r.Shutdown(t.Context(), &troupev1.ShutdownRequest{})
	require.NoError(t, err)
	require.ErrorContains(t, r.awaitEnd(t), "the database is away")
	require.Equal(t, []string{"stopped"}, log)
}

// A tool that says that its process is broken ends the step and the instance.
//
// Req: LC-39
func TestWorker_EndsWhenItsAuthorSaysSo(t *testing.T) {
	s := newWorkerEnv(t)
	broken, err := tool.Func("act", "Acts.", func(context.Context, struct{}) (string, error) {
		return "", failure.New(failure.ResourceTool, "device", "the device is gone").Fatal()
	})
	require.NoError(t, err)
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New(scripted.Call(conversation.ToolCall{ID: "1", Name: "act", Arguments: "{}"})), Tools: []tool.Tool{broken}})
	_, result := readStep(t, r.execute(t.Context(), t, s.beginTurn(t, "a", "s1")))
	require.Equal(t, "the device is gone", result.GetFailure().GetMessage())
	require.NoError(t, r.awaitEnd(t))
	require.Len(t, r.logs.FilterMessage("state changed").FilterField(zap.String("to", "terminated")).All(), 1)
}
