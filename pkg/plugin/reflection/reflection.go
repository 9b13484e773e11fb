// Package reflection lets an agent think before it acts, and again when it sees what came of
// it: the model makes a plan when the user has spoken, and looks back after a tool round
// (CO-64). What it thinks is told as event.Thinking, and added to the conversation of the
// turn.
package reflection

import (
	"cmp"
	"context"
	"errors"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/plugin/internal/aside"
)

// Name is that of the plugin.
const Name = "reflection"

// ReasonFailed is that of the warning when the model did not answer and the turn goes on
// without the thought.
const ReasonFailed = "REFLECTION_FAILED"

// Config describes the plugin.
type Config struct {
	Every int // after how many tool rounds the model looks back; 0: 1, after each
}

// How much of a conversation the model thinks about.
const (
	lastMessages = 10
	maxText      = 2 << 10 // bytes of each text
	maxThought   = 4 << 10
)

const (
	planning = "You plan for an assistant that has tools. Write how it should answer the last request of the conversation: " +
		"at most five short lines, what to find out first and what to check. Do not answer the request."
	reflecting = "You look back for an assistant that just used its tools. Write in at most four short lines what the results " +
		"say about the request, what is still missing or doubtful, and what to do next. Do not answer the request."
)

// New returns the plugin that c describes. Modes: agent_validation. In an agent without a
// model it fails at construction.
func New(c Config) (hook.Plugin, error) {
	if c.Every < 0 {
		return hook.Plugin{}, failure.Newf(failure.AgentValidation, "reflection.New", "Every is %d; use 1 or more rounds", c.Every)
	}
	p := plugin{every: cmp.Or(c.Every, 1)}
	return hook.Plugin{Name: Name, Handlers: []hook.Handler{
		hook.OnAgentReady(needsModel), hook.AfterUserInput(p.plan), hook.AfterTools(p.reflect),
	}}, nil
}

func needsModel(a hook.Agent) error {
	if a.Model == "" {
		return failure.Newf(failure.AgentValidation, "reflection.New", "agent %s has no model that could think; give the plugin to the agents that it runs", a.Name)
	}
	return nil
}

type plugin struct{ every int }

func (p plugin) plan(ctx context.Context, t *hook.Turn) error {
	if len(t.Info().Routes) > 0 {
		return nil // it says where to go, and does not work itself
	}
	return think(ctx, t, event.Plan, planning, aside.Messages(conversation.Window(t.Messages(), lastMessages, 0), maxText))
}

// reflect goes by the number of the iteration, which a successor counts as well.
func (p plugin) reflect(ctx context.Context, r *hook.Round) error {
	if r.Iteration()%p.every != 0 {
		return nil
	}
	return think(ctx, r.Turn, event.Reflection, reflecting, struct {
		Request string       `json:"request"`
		Calls   []aside.Call `json:"calls"`
	}{conversation.Cut(r.Info().Prompt, maxText), aside.Calls(r, maxText)})
}

var titles = map[event.Topic]string{event.Plan: "Your plan:\n", event.Reflection: "Your thoughts on these results:\n"}

// think asks the model, and adds what it thinks on the user's side: an assistant message at
// the end would be one that the model goes on writing.
func think(ctx context.Context, t *hook.Turn, topic event.Topic, instruction string, data any) error {
	thought, err := aside.Ask(ctx, t, instruction, data)
	if errors.Is(err, aside.ErrModel) {
		t.Warn(ReasonFailed, "the agent goes on without a "+string(topic)+": its model did not answer")
		return nil
	}
	if err != nil {
		return err
	}
	thought = conversation.Cut(thought, maxThought)
	t.Think(topic, thought)
	t.Add(conversation.Message{Role: conversation.RoleUser, Author: t.Info().Agent, Text: titles[topic] + thought})
	return nil
}
