package samples

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/session"
)

// newManaged returns the managed agent of the lifecycle contract: startup takes a temporary file, shutdown removes it.
func newManaged(t *testing.T, folder string, failing error) *agent.Agent {
	t.Helper()
	path := filepath.Join(folder, "work")
	a, err := agent.New(agent.Config{
		Name: "managed", Model: scripted.New(scripted.Say("Hello."), scripted.Say("Again.")),
		Lifecycle: agent.Lifecycle{
			Timeout: 5 * time.Second,
			OnStart: func(_ context.Context, a hook.Agent) error {
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					return err
				}
				return errors.Join(a.State.Set("_counter", 1), failing)
			},
			OnStop: func(context.Context, hook.Agent) error { return os.Remove(path) },
		},
	})
	require.NoError(t, err)
	return a
}

// Document 001: startup and shutdown take and release resources, both may be repeated, ephemeral state ends with them, and
// set_state refuses keys of other owners. It differs in this: the states belong to the instance, which the worker keeps, so an
// agent in a program has Start and Close and no state property; a turn before Start is rejected as requires_state demands. An
// agent that stopped may start again in a program; an instance of the mesh may not.
//
// Req: LC-8, LC-30, SO-6, SO-7, LC-21
func TestCugar_ManagedAgent(t *testing.T) {
	folder := t.TempDir()
	a := newManaged(t, folder, nil)
	require.NoError(t, a.Start(t.Context()))
	require.NoError(t, a.Start(t.Context()), "startup is idempotent")
	require.FileExists(t, filepath.Join(folder, "work"))
	counter, _ := a.State().Get("_counter")
	require.Equal(t, 1, counter)

	for key, owner := range map[string]string{"user_history": "memory", "trace_id": "orchestrator"} {
		err := a.State().Set(key, "mine")
		require.True(t, failure.Is(err, failure.StateViolation), key)
		violation, _ := errors.AsType[*failure.Error](err)
		require.Equal(t, []string{key, owner, "managed"}, []string{
			violation.Facts[failure.FactKey], violation.Facts[failure.FactOwner], violation.Facts[failure.FactActor],
		})
	}

	s, err := local.Open(t.Context(), a, local.Config{})
	require.NoError(t, err)
	answer, err := s.Ask(t.Context(), "Hello") // busy, and ready again
	require.NoError(t, err)
	require.Equal(t, "Hello.", answer)
	require.Equal(t, session.Ready, s.State())
	require.NoError(t, s.Close(t.Context()))
	_, err = s.Ask(t.Context(), "Hello")
	require.True(t, failure.Is(err, failure.SessionClosed), "requires_state: %v", err)

	require.NoError(t, a.Close())
	require.NoError(t, a.Close(), "shutdown is idempotent")
	require.NoFileExists(t, filepath.Join(folder, "work"))
	require.Empty(t, a.State().Keys())
}

// Document 001, the failing startup: the error is raised, and what was taken is released.
//
// Req: LC-10, LC-11
func TestCugar_FailedStartupReleases(t *testing.T) {
	down := failure.New(failure.ResourceTool, "database", "The database is down.")
	a := newManaged(t, t.TempDir(), down)
	err := a.Start(t.Context())
	require.ErrorIs(t, err, down)
	require.NoError(t, a.Close())
}
