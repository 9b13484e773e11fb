package worker

import (
	"context"
	"encoding/json"

	"github.com/troupe-dev/troupe/internal/retry"
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

// stopAgent stops the agent. Its changes to its configuration are stored before its state is dropped (LC-18), unless the
// call that started the instance asked not to keep its state (LC-36).
func (w *Worker) stopAgent(ctx context.Context) error {
	if !w.instance.KeepsState() {
		w.agent.Config().SetStore(nil)
	}
	return w.agent.Stop(ctx)
}
