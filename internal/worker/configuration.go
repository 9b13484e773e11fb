package worker

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// configStore stores the agent's configuration in the memory service (SO-11).
type configStore struct {
	configs     memory.Configs
	agentConfig *ownership.Config
	agent       string
}

// Load implements ownership.ConfigStore.
func (c *configStore) Load(ctx context.Context, agent string) (int64, map[string]json.RawMessage, error) {
	stored, err := retry.Do(ctx, func(ctx context.Context) (memory.Configuration, error) { return c.configs.GetConfig(ctx, agent) })
	return stored.Version, stored.Values, err
}

// Save implements ownership.ConfigStore.
func (c *configStore) Save(ctx context.Context, base int64, changes map[string]json.RawMessage) (int64, map[string]json.RawMessage, error) {
	change := memory.ConfigChange{Agent: c.agent, Base: base, Protocol: c.agentConfig.Protocol(), Delta: changes}
	stored, err := retry.Do(ctx, func(ctx context.Context) (memory.Configuration, error) { return c.configs.PutConfig(ctx, change) })
	return stored.Version, stored.Values, err
}

// startAgent opens the agent's resources and then loads its configuration, if it has one. Without its
// configuration the agent must not work.
func (w *Worker) startAgent(ctx context.Context) error {
	if err := w.agent.Start(ctx); err != nil || w.agent.Config().Protocol() == "" {
		return err
	}
	return w.agent.Config().Reload(ctx)
}

// stopAgent stores the agent's changes to its configuration before its state is dropped (LC-18), and closes the
// agent. An error says that the changes are lost.
func (w *Worker) stopAgent(ctx context.Context) error {
	err := w.agent.Config().Save(ctx)
	if err != nil {
		err = failure.Newf(failure.ModeOf(err), "worker.Shutdown", "the changes of the configuration are lost: %s", failure.PlainMessage(err)).Because(err)
	}
	return errors.Join(err, w.agent.Close())
}
