// Package configs stores the configurations of agents in Redis.
package configs

import (
	"context"
	_ "embed"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/ownership"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/delta"
)

//go:embed scripts/config.lua
var configSource string

var configScript = db.Register("config", configSource)

// Configs implements memory.Configs. It is safe for concurrent use.
type Configs struct {
	db         *db.DB
	leastEpoch func() (int64, error)
}

// New returns a configuration store backed by d. A new version is at least the value that leastEpoch returns. So
// no version is assigned twice, even if Redis has lost writes.
func New(d *db.DB, leastEpoch func() (int64, error)) *Configs { return &Configs{d, leastEpoch} }

// configKey returns the key of an agent's configuration. The key has no tenant, because agents belong to none.
func configKey(agent string) string { return "m:config:{" + agent + "}" }

// GetConfig implements memory.Configs.
func (c *Configs) GetConfig(ctx context.Context, agent string) (memory.Configuration, error) {
	stored, err := c.db.HGetAll(ctx, configKey(agent)).Result()
	if err != nil {
		return memory.Configuration{}, c.db.Failure("memory.GetConfig", err)
	}
	return decodeConfiguration(stored), nil
}

// PutConfig implements memory.Configs.
func (c *Configs) PutConfig(ctx context.Context, change memory.ConfigChange) (memory.Configuration, error) {
	const op = "memory.PutConfig"
	if err := change.Check(op); err != nil {
		return memory.Configuration{}, err
	}
	least, err := c.leastEpoch()
	if err != nil {
		return memory.Configuration{}, err
	}
	args := append([]any{change.Base, string(change.Protocol), least, memory.MaxConfigKeys, memory.MaxConfigBytes}, delta.SortedPairs(change.Delta)...)
	r, err := c.db.RunScript(ctx, op, session.Ref{}, configScript, []string{configKey(change.Agent)}, args...)
	if err != nil {
		return memory.Configuration{}, err
	}
	switch r.Status() {
	case "ok":
		return decodeConfiguration(r.Hash(1)), nil
	case "config_full":
		return memory.Configuration{}, failure.Newf(failure.ResourceQuota, op,
			"the configuration of %s would have %s keys and %s bytes; at most %d and %d are: remove some",
			change.Agent, r.Text(1), r.Text(2), memory.MaxConfigKeys, memory.MaxConfigBytes)
	default:
		return memory.Configuration{}, revisionMismatchError(op, change, r)
	}
}

func revisionMismatchError(op string, change memory.ConfigChange, r db.Reply) error {
	base := strconv.FormatInt(change.Base, 10)
	err := failure.Newf(failure.RevisionMismatch, op, "the configuration of %s is at version %s and not %s; read it again and repeat the change",
		change.Agent, r.Text(1), base).
		With("if_revision", base).With("revision", r.Text(1))
	if key := r.Text(2); key != "" {
		err = err.With("key", key)
	}
	return err
}

// decodeConfiguration decodes the hash of a configuration.
func decodeConfiguration(stored map[string]string) memory.Configuration {
	c := memory.Configuration{Version: db.ParseNumber(stored["version"]), Protocol: ownership.Protocol(stored["protocol"])}
	for field, text := range stored {
		if key, ok := strings.CutPrefix(field, delta.ValuePrefix); ok {
			if c.Values == nil {
				c.Values = map[string]json.RawMessage{}
			}
			c.Values[key] = json.RawMessage(text)
		}
	}
	return c
}
