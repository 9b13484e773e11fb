// Package guardrails checks the input and the output of an agent. Checks read the user's input before the agent
// works, and the model's text before it is used. A check that trips ends the turn, either with a prepared answer
// or with policy_security. A check that fails counts as tripped.
package guardrails

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/sidecall"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// Name is the name of the plugin, unless its Config has another. ReasonTripped is the reason of the warning that a check has
// tripped. The warning names the check but quotes nothing of the text.
const (
	Name          = "guardrails"
	ReasonTripped = "GUARDRAIL_TRIPPED"
)

// Config holds the settings of the plugin. It needs at least one check.
type Config struct {
	Name   string  // for an agent with several guardrails (empty means Name)
	Input  []Check // checks of the user's input
	Output []Check // checks of the model's text, including text next to tool calls
	// Answer replaces the agent's answer when a check trips, and the turn completes. If it is empty, the turn
	// fails with policy_security. A step that decides the route fails in both cases.
	Answer string
	Log    *zap.Logger // for the reasons why checks fail (nil logs nothing)
}

// New returns the plugin that c describes. Modes: agent_validation. An agent without a model accepts no checks of
// the output and no Topics: building it fails, because there is no output and no model to judge.
//
// With checks of the output, the model's words are shown in one piece once they have passed, and not as they
// arrive (hook.LLMRequest.Quiet).
func New(c Config) (hook.Plugin, error) {
	if len(c.Input)+len(c.Output) == 0 {
		return hook.Plugin{}, failure.New(failure.AgentValidation, "guardrails.New", "Input and Output are missing; add a check, or leave the plugin out")
	}
	for _, list := range []struct {
		field  string
		checks []Check
	}{{"Input", c.Input}, {"Output", c.Output}} {
		for i, check := range list.checks {
			if wrong := cmp.Or(check.problem, Func(check.name, check.trips).problem); wrong != "" {
				return hook.Plugin{}, failure.Newf(failure.AgentValidation, "guardrails.New", "%s[%d]: %s", list.field, i, wrong)
			}
		}
	}
	g := &guard{outputChecks: slices.Clone(c.Output), answer: c.Answer, log: c.Log}
	for _, check := range c.Input {
		if check.usesModel {
			g.modelChecks = append(g.modelChecks, check)
		} else {
			g.inputChecks = append(g.inputChecks, check)
		}
	}
	if g.log == nil {
		g.log = zap.NewNop()
	}
	handlers := []hook.Handler{hook.OnAgentReady(g.checkAgent), hook.BeforeAgent(g.beforeAgent)}
	if len(g.modelChecks) > 0 {
		handlers = append(handlers, hook.AfterUserInput(g.afterUserInput))
	}
	if len(g.outputChecks) > 0 {
		handlers = append(handlers, hook.BeforeLLM(g.holdText), hook.AfterLLM(g.afterLLM))
	}
	return hook.Plugin{Name: cmp.Or(c.Name, Name), Handlers: handlers}, nil
}

type guard struct {
	inputChecks  []Check // checks of the input that need no model, which run before everything else
	modelChecks  []Check // checks of the input that ask the model, which run when it can be asked
	outputChecks []Check
	answer       string
	log          *zap.Logger
}

func (g *guard) checkAgent(a hook.Agent) error {
	if a.Model == "" && len(g.modelChecks)+len(g.outputChecks) > 0 {
		return failure.Newf(failure.AgentValidation, "guardrails.New",
			"agent %s has no model, so Output and Topics have nothing to work with; give the plugin to the agents that it runs", a.Name)
	}
	return nil
}

func (g *guard) beforeAgent(ctx context.Context, t *hook.Turn) (string, error) {
	if err := g.hideTrippingMessages(ctx, t); err != nil {
		return "", err
	}
	tripped, err := g.firstTripped(ctx, t, g.inputChecks, t.Info().Prompt)
	if err != nil || tripped == "" {
		return "", err
	}
	return g.replacement(t, "input", tripped)
}

// hideTrippingMessages replaces the text of older user messages that would trip a check. The session still
// contains rejected messages, and the next turn must not show them to the model.
func (g *guard) hideTrippingMessages(ctx context.Context, t *hook.Turn) error {
	messages := slices.Clone(t.Messages())
	changed, last := false, true
	for i, m := range slices.Backward(messages) {
		if m.Role != conversation.RoleUser || m.Author != "" {
			continue
		}
		if last { // the input of this turn
			last = false
			continue
		}
		tripped, err := g.firstTripped(ctx, t, g.inputChecks, m.Text)
		if err != nil {
			return err
		}
		if tripped != "" {
			messages[i].Text, changed = "(left out)", true
		}
	}
	if !changed {
		return nil
	}
	return t.Replace(messages)
}

func (g *guard) afterUserInput(ctx context.Context, t *hook.Turn) error {
	tripped, err := g.firstTripped(ctx, t, g.modelChecks, t.Info().Prompt)
	if err != nil || tripped == "" {
		return err
	}
	answer, err := g.replacement(t, "input", tripped)
	if err != nil {
		return err
	}
	t.Add(conversation.Assistant(t.Info().Agent, answer))
	t.End()
	return nil
}

// holdText withholds the text of a reply until it is checked.
func (g *guard) holdText(_ context.Context, req *hook.LLMRequest) error {
	req.Quiet = true
	return nil
}

// afterLLM checks the text of a reply, unless the reply chooses a route. It replaces a text that trips and drops
// the tool calls. It also checks text next to tool calls, because that text becomes the answer when no iterations
// are left.
func (g *guard) afterLLM(ctx context.Context, reply *hook.LLMReply) error {
	if len(reply.Info().Routes) > 0 {
		return nil // the reply is the name of an agent, which is not shown
	}
	tripped, err := g.firstTripped(ctx, reply.Turn, g.outputChecks, reply.Text)
	if err != nil || tripped == "" {
		return err
	}
	reply.Text, err = g.replacement(reply.Turn, "output", tripped)
	reply.ToolCalls = nil
	return err
}

// firstTripped returns the name of the first check that trips (empty if none does). It returns an error only for
// problems of the turn. If a check fails, it counts as tripped.
func (g *guard) firstTripped(ctx context.Context, t *hook.Turn, checks []Check, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	for _, check := range checks {
		trips, err := check.run(ctx, t, text)
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case errors.As(err, new(turnError)):
			return "", err
		case err != nil:
			g.log.Warn("a guardrail failed and counts as tripped", zap.String("agent", t.Info().Agent), zap.String("check", check.name), zap.Error(err))
			return check.name, nil
		case trips:
			return check.name, nil
		}
	}
	return "", nil
}

// turnError wraps an error that the check did not cause: the turn was stopped while the model judged, or its
// worker was lost.
type turnError struct{ error }

func (e turnError) Unwrap() error { return e.error }

// run runs the check and turns a panic into an error.
func (c Check) run(ctx context.Context, t *hook.Turn, text string) (trips bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	trips, err = c.trips(ctx, t, text)
	if err != nil && c.usesModel && !errors.Is(err, sidecall.ErrModel) && !errors.Is(err, errNoJudgement) {
		err = turnError{err}
	}
	return trips, err
}

// replacement returns the answer that the user gets instead of the agent's answer, or an error that fails the
// turn.
func (g *guard) replacement(t *hook.Turn, of, check string) (string, error) {
	t.Warn(ReasonTripped, fmt.Sprintf("the guardrail %s tripped at the %s of agent %s", check, of, t.Info().Agent))
	if g.answer != "" && len(t.Info().Routes) == 0 {
		return g.answer, nil
	}
	return "", failure.Newf(failure.PolicySecurity, "guardrails", "the guardrail %s of agent %s does not let the %s pass", check, t.Info().Agent, of).
		With("check", check)
}
