package ownership_test

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// ownerAgent is the agent that owns the tested state. In each turn it performs one action that the user requests.
// Its answer is "ok" or a failure mode.
const ownerAgent = "owner"

// actions maps the names of actions to what a turn then does.
var actions = map[string]func(context.Context, *hook.Turn) error{
	"agent.read": func(_ context.Context, t *hook.Turn) error {
		if v, ok := t.State().Get("_kept"); !ok || v != "mine" {
			return failure.New(failure.NotFound, "test", "it is not there")
		}
		return nil
	},
	"agent.write":  func(_ context.Context, t *hook.Turn) error { return t.State().Set("_kept", "mine") },
	"agent.delete": func(_ context.Context, t *hook.Turn) error { return t.State().Delete("_gone") },
	"agent.persist": func(_ context.Context, t *hook.Turn) error {
		return t.Memory().Set("_kept", "mine") // state that outlives the turn
	},
	"memory.read": func(ctx context.Context, t *hook.Turn) error {
		_, err := t.Memory().Get(ctx, "mood")
		return err
	},
	"memory.update":      func(_ context.Context, t *hook.Turn) error { return t.Memory().Set("mood", "good") },
	"memory.write":       func(_ context.Context, t *hook.Turn) error { return t.State().Set("history", "none") },
	"orchestrator.read":  readTrace,
	"orchestrator.write": func(_ context.Context, t *hook.Turn) error { return t.State().Set("trace_id", "mine") },
	"orchestrator.ask":   func(_ context.Context, t *hook.Turn) error { return t.Memory().Set("routing", "me") },
	"shared.set":         func(_ context.Context, t *hook.Turn) error { return t.Config().Set("tone", "rude") },
	"shared.write": func(ctx context.Context, t *hook.Turn) error {
		if err := t.Config().Set("tone", "kind"); err != nil {
			return err
		}
		return t.Config().Save(ctx)
	},
	"shared.read": func(ctx context.Context, t *hook.Turn) error {
		values, err := t.Config().LoadAgent(ctx, ownerAgent)
		if err == nil && !json.Valid(values["tone"]) {
			return failure.New(failure.NotFound, "test", "it is not there")
		}
		return err
	},
}

func readTrace(_ context.Context, t *hook.Turn) error {
	if id, ok := t.Trace().Get("trace_id"); !ok || id != t.Info().TraceID {
		return failure.New(failure.NotFound, "test", "it is not there")
	}
	return nil
}

// newAgent returns an agent that performs the requested action. Only the owner agent has a configuration. owns
// adds to the default ownership rules.
func newAgent(name string, owns map[string]ownership.Owner) (*agent.Agent, error) {
	c := agent.Config{
		Name: name, Model: scripted.New(), Owns: owns,
		Handlers: []hook.Handler{hook.BeforeAgent(func(ctx context.Context, t *hook.Turn) (string, error) {
			if err := actions[strings.TrimSpace(t.Info().Prompt)](ctx, t); err != nil {
				return string(failure.ModeOf(err)), nil
			}
			return "ok", nil
		})},
	}
	if name == ownerAgent {
		c.Config = ownership.Merge
	}
	return agent.New(c)
}
