package agent_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// logHook returns a hook that logs what it does and returns err.
func logHook(log *[]string, what string, err error) func(context.Context, hook.Agent) error {
	return func(context.Context, hook.Agent) error {
		*log = append(*log, what)
		return err
	}
}

// newHookedConfig returns the configuration of an agent with a tool, two plugins, and hooks of its own.
func newHookedConfig(name string, log *[]string) agent.Config {
	return agent.Config{
		Name: name, Model: scripted.New(), Tools: []tool.Tool{&loggedResource{name: name + "-tool", log: log}},
		Plugins: []hook.Plugin{
			{Name: "one", Start: logHook(log, name+" start one", nil), Stop: logHook(log, name+" stop one", nil)},
			{Name: "two", Start: logHook(log, name+" start two", nil), Stop: logHook(log, name+" stop two", nil)},
		},
		Lifecycle: agent.Lifecycle{OnStart: logHook(log, name+" starts", nil), OnStop: logHook(log, name+" stops", nil)},
	}
}

// Req: LC-30, LC-37
func TestAgent_RunsStartAndStopHooksInOrder(t *testing.T) {
	var log []string
	a, err := agent.New(newHookedConfig("a", &log))
	require.NoError(t, err)
	require.NoError(t, a.Close(), "before the start")
	require.Empty(t, log)
	for range 2 { // an agent may start again
		log = nil
		require.NoError(t, a.Start(t.Context()))
		require.NoError(t, a.Start(t.Context()))
		require.NoError(t, a.Close())
		require.NoError(t, a.Close())
		require.Equal(t, []string{
			"start a-tool", "a start one", "a start two", "a starts", "a stops", "a stop two", "a stop one", "close a-tool",
		}, log)
	}
}

// What an agent runs starts before it and stops after it.
//
// Req: LC-32
func TestAgent_StartsAndStopsItsAgents(t *testing.T) {
	var log []string
	hooks := func(name string) agent.Lifecycle {
		return agent.Lifecycle{OnStart: logHook(&log, name+" starts", nil), OnStop: logHook(&log, name+" stops", nil)}
	}
	newChild := func(name string) *agent.Agent {
		child, err := agent.New(agent.Config{Name: name, Model: scripted.New(), Lifecycle: hooks(name)})
		require.NoError(t, err)
		return child
	}
	a, err := flow.Sequence(agent.Config{Name: "a", Lifecycle: hooks("a")}, newChild("b"), newChild("c"))
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	require.NoError(t, a.Close())
	require.Equal(t, []string{"b starts", "c starts", "a starts", "a stops", "c stops", "b stops"}, log)
}

// A hook that fails or panics fails the start. What was started before is stopped, and what was not is not.
//
// Req: LC-37
func TestAgent_StopsWhatItStartedWhenAHookFails(t *testing.T) {
	for name, c := range map[string]struct {
		broken func(context.Context, hook.Agent) error
		mode   failure.Mode
		text   string
	}{
		"a failure": {
			func(context.Context, hook.Agent) error {
				return failure.New(failure.ResourceAPI, "db", "the database is away")
			},
			failure.ResourceAPI, "agent a: plugin two did not start: the database is away",
		},
		"an error": {func(context.Context, hook.Agent) error { return errors.New("secret") }, failure.AgentLogic, "plugin two did not start: the log has the cause"},
		"a panic":  {func(context.Context, hook.Agent) error { panic("oh") }, failure.AgentLogic, "plugin two did not start: the log has the cause"},
	} {
		t.Run(name, func(t *testing.T) {
			var log []string
			config := newHookedConfig("a", &log)
			config.Plugins[1].Start = c.broken
			a, err := agent.New(config)
			require.NoError(t, err)
			err = a.Start(t.Context())
			require.Equal(t, c.mode, failure.ModeOf(err), "%v", err)
			require.ErrorContains(t, err, c.text)
			require.Equal(t, []string{"start a-tool", "a start one", "a stop one", "close a-tool"}, log)
			require.NoError(t, a.Close())
			require.Len(t, log, 4)
		})
	}
}

// A stop hook that hangs, fails or panics does not prevent the others.
//
// Req: LC-18, LC-19, LC-37
func TestAgent_StopsEverythingDespiteABrokenHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		for name, broken := range map[string]func(context.Context, hook.Agent) error{
			"plugin two did not stop: it was told so": func(context.Context, hook.Agent) error {
				return failure.New(failure.ResourceAPI, "db", "it was told so")
			},
			"plugin two did not stop: the log has the cause":    func(context.Context, hook.Agent) error { panic("oh") },
			"plugin two did not stop in time and was abandoned": func(context.Context, hook.Agent) error { <-released; return nil },
		} {
			var log []string
			config := newHookedConfig("a", &log)
			config.Plugins[1].Stop = broken
			a, err := agent.New(config)
			require.NoError(t, err)
			require.NoError(t, a.Start(t.Context()))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			began := time.Now()
			require.ErrorContains(t, a.Stop(ctx), name)
			require.NoError(t, ctx.Err())
			require.Less(t, time.Since(began), time.Minute)
			cancel()
			require.Equal(t, []string{"start a-tool", "a start one", "a start two", "a starts", "a stops", "a stop one", "close a-tool"}, log)
		}
		close(released)
	})
}

// Req: LC-37
func TestAgent_HooksSeeItsStateAndItsConfiguration(t *testing.T) {
	var seen hook.Agent
	a, err := agent.New(agent.Config{Name: "a", Description: "Does.", Model: scripted.New(), Lifecycle: agent.Lifecycle{OnStart: func(_ context.Context, h hook.Agent) error {
		seen = h
		return h.State.Set("_connection", "open")
	}}})
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	value, ok := a.State().Get("_connection")
	require.True(t, ok)
	require.Equal(t, "open", value)
	require.Equal(t, []any{"a", "Does.", a.Config()}, []any{seen.Name, seen.Description, seen.Config})
	require.NoError(t, a.Close())
	_, ok = a.State().Get("_connection")
	require.False(t, ok)
}
