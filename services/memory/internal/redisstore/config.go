package redisstore

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
)

//go:embed scripts/config.lua
var configSource string

var configScript = script(configSource)

// configKey is that of the configuration of an agent. It belongs to no tenant, as its agent.
func configKey(agent string) string { return "m:config:{" + agent + "}" }

// GetConfig implements memory.Configs.
func (s *Store) GetConfig(ctx context.Context, agent string) (memory.Configuration, error) {
	stored, err := s.redis.HGetAll(ctx, configKey(agent)).Result()
	if err != nil {
		return memory.Configuration{}, s.redis.Fault("memory.GetConfig", err)
	}
	return configuration(stored), nil
}

// PutConfig implements memory.Configs.
func (s *Store) PutConfig(ctx context.Context, c memory.ConfigChange) (memory.Configuration, error) {
	const op = "memory.PutConfig"
	if err := memory.CheckConfig(op, c); err != nil {
		return memory.Configuration{}, err
	}
	generation, err := s.cfg.Generation()
	if err != nil {
		return memory.Configuration{}, err
	}
	args := append([]any{c.Base, string(c.Protocol), generation << generationBits, memory.MaxConfigKeys, memory.MaxConfigBytes}, pairs(c.Delta)...)
	r, err := s.run(ctx, op, session.Ref{}, configScript, []string{configKey(c.Agent)}, args...)
	if err != nil {
		return memory.Configuration{}, err
	}
	switch r.status() {
	case "ok":
		return configuration(r.fields(1)), nil
	case "config_full":
		return memory.Configuration{}, failure.Newf(failure.ResourceQuota, op, "the configuration of %s would have %s keys and %s bytes; at most %d and %d are: remove some",
			c.Agent, r.text(1), r.text(2), memory.MaxConfigKeys, memory.MaxConfigBytes)
	default:
		return memory.Configuration{}, otherConfig(op, c, r)
	}
}

func otherConfig(op string, c memory.ConfigChange, r reply) error {
	base := strconv.FormatInt(c.Base, 10)
	err := failure.Newf(failure.RevisionMismatch, op, "the configuration of %s is at version %s and not %s; read it again and repeat the change", c.Agent, r.text(1), base).
		With("if_revision", base).With("revision", r.text(1))
	if key := r.text(2); key != "" {
		err = err.With("key", key)
	}
	return err
}

// configuration reads the hash.
func configuration(stored map[string]string) memory.Configuration {
	c := memory.Configuration{Version: number(stored["version"]), Protocol: ownership.Protocol(stored["protocol"])}
	for field, text := range stored {
		if key, ok := strings.CutPrefix(field, value); ok {
			if c.Values == nil {
				c.Values = map[string]json.RawMessage{}
			}
			c.Values[key] = json.RawMessage(text)
		}
	}
	return c
}
