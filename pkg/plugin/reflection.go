package plugin

import (
	"cmp"
	"context"
	"errors"

	"github.com/troupe-dev/troupe/internal/sidecall"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// Reflection lets the model of an agent make a plan after the user's message, and reflect after a round of tools
// (CO-64). Each thought is published as event.Thinking and added to the conversation of the turn.
type Reflection struct {
	Every int // number of tool rounds between two reflections (0 means 1: a reflection after each round)
}

// These limits restrict how much of a conversation the model reads for a thought, and how long the thought is.
const (
	lastMessages = 10
	maxText      = 2 << 10 // maximum length of each text in bytes
	maxThought   = 4 << 10 // maximum length of a thought in bytes
)

const (
	planInstruction = "You plan for an assistant that has tools. Write how it should answer the last request of the conversation: " +
		"at most five short lines, what to find out first and what to check. Do not answer the request."
	reflectInstruction = "You look back for an assistant that just used its tools. Write in at most four short lines what the results " +
		"say about the request, what is still missing or doubtful, and what to do next. Do not answer the request."
)

// NewReflection returns the plugin that c describes. Modes: agent_validation. The construction of an agent without a
// model rejects the plugin.
func NewReflection(c Reflection) (hook.Plugin, error) {
	if c.Every < 0 {
		return hook.Plugin{}, failure.Newf(failure.AgentValidation, "plugin.NewReflection", "Every is %d; use 1 or more rounds", c.Every)
	}
	p := reflection{every: cmp.Or(c.Every, 1)}
	return hook.Plugin{Name: ReflectionName, Handlers: []hook.Handler{
		hook.OnAgentReady(checkModel), hook.AfterUserInput(p.plan), hook.AfterTools(p.reflect),
	}}, nil
}

func checkModel(a hook.Agent) error {
	if a.Model == "" {
		return failure.Newf(failure.AgentValidation, "plugin.NewReflection",
			"agent %s has no model that could think; give the plugin to the agents that it runs", a.Name)
	}
	return nil
}

type reflection struct{ every int }

func (p reflection) plan(ctx context.Context, t *hook.Turn) error {
	if len(t.Info().Routes) > 0 {
		return nil // the agent only chooses a route and does no work of its own
	}
	return think(ctx, t, event.Plan, planInstruction, sidecall.Messages(conversation.Window(t.Messages(), lastMessages, 0), maxText))
}

// reflect asks for a reflection after every few iterations. It uses the iteration number because a successor of a
// lost worker sees the same numbers.
func (p reflection) reflect(ctx context.Context, r *hook.Round) error {
	if r.Iteration()%p.every != 0 {
		return nil
	}
	return think(ctx, r.Turn, event.Reflection, reflectInstruction, struct {
		Request string          `json:"request"`
		Calls   []sidecall.Call `json:"calls"`
	}{conversation.Truncate(r.Info().Prompt, maxText), sidecall.Calls(r, maxText)})
}

var titles = map[event.Topic]string{event.Plan: "Your plan:\n", event.Reflection: "Your thoughts on these results:\n"}

// think asks the model and adds its thought to the conversation as a user message. If the thought were an
// assistant message at the end of the conversation, a model would continue it instead of answering.
func think(ctx context.Context, t *hook.Turn, topic event.Topic, instruction string, data any) error {
	thought, err := sidecall.Ask(ctx, t, instruction, data)
	if errors.Is(err, sidecall.ErrModel) {
		t.Warn(ReasonReflectionFailed, "the agent continues without a "+string(topic)+": its model did not answer")
		return nil
	}
	if err != nil {
		return err
	}
	thought = conversation.Truncate(thought, maxThought)
	t.Think(topic, thought)
	t.Add(conversation.Message{Role: conversation.RoleUser, Author: t.Info().Agent, Text: titles[topic] + thought})
	return nil
}
