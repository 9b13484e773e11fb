package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/loop"
)

// Reasons of the warnings that an agent gives, beside those of the loop.
const (
	ReasonTextCut  = "TEXT_CUT"      // what the agent said was longer than a message may be
	ReasonDegraded = "STEP_DEGRADED" // the step failed and its policy made a result of that
)

// Run executes one step and returns its result and the messages to commit: exactly one,
// what the agent said last (RA-16); tool rounds stay inside the step. A step that decides
// where to go (step.Routes) has no text and no message, and NextAgent is empty when the
// model named none of the routes.
//
// Events go to emit in order; an error of emit ends the step and is returned as it is. The
// error of a model keeps its mode; a step that takes too long is agent_timeout, one whose
// ctx was cancelled user_cancelled. With an error, of the result only Step, Agent,
// Iterations and Usage are filled.
func (a *Agent) Run(ctx context.Context, step execution.Step, emit func(event.Event) error) (execution.Result, []conversation.Message, error) {
	limited, cancel := context.WithTimeout(ctx, a.config.Timeout)
	defer cancel()
	var unheard error
	tell := func(e event.Event) error {
		if _, ok := e.(event.TextDelta); ok && len(step.Routes) > 0 {
			return nil // the name of a route is no part of the answer
		}
		unheard = emit(e)
		return unheard
	}

	l := loop.Loop{Model: a.config.Model, Tools: a.tools, MaxIterations: a.config.MaxIterations}
	in := a.prompt(step)
	in.Journal = step.Journal
	in.Key = func(number int) string { return execution.CallKey(step.TurnID, step.Number, number) }
	out, err := l.Run(limited, in, tell)
	result := execution.Result{
		Step:       step.Number,
		Agent:      a.Name(),
		Iterations: out.Iterations,
		Usage:      out.Usage,
	}
	if len(step.Routes) > 0 {
		if err == nil {
			result.NextAgent = choose(step.Routes, out.Text)
		}
		return result, nil, err
	}
	if err == nil && strings.TrimSpace(out.Text) == "" {
		err = failure.Newf(failure.AgentLogic, "agent.Run", "the model of agent %s gave an empty answer", a.Name())
	}
	if err != nil && (ctx.Err() != nil || unheard != nil || lost(err) || !a.forgives()) {
		return result, nil, err
	}

	result.Text = out.Text
	result.InputRequired = a.config.AsksUser
	result.ToolsCalled = toolsCalled(out.Calls)
	result.Observations = observations(out.Calls)
	result.MaxIterations = out.MaxIterations
	result.Confidence = confidence(step, result.Observations)
	if err != nil {
		if err := a.degrade(&result, step, err, tell); err != nil {
			return result, nil, err
		}
	}
	if len(result.Text) > conversation.MaxMessageBytes {
		result.Text = conversation.Cut(result.Text, conversation.MaxMessageBytes)
		if err := tell(event.Warning{Reason: ReasonTextCut, Message: fmt.Sprintf(
			"agent %s said more than %d bytes; the rest is cut off", a.Name(), conversation.MaxMessageBytes)}); err != nil {
			return result, nil, err
		}
	}
	return result, []conversation.Message{conversation.Assistant(a.Name(), result.Text)}, nil
}

// lost reports whether the step is no longer this attempt's to go on with.
func lost(err error) bool {
	return failure.Is(err, failure.Fenced, failure.TurnNotOpen, failure.Nondeterminism, failure.SessionDeleted)
}

// forgives reports whether a failed model still makes a result. An agent that asks the
// user always has something to ask (RA-13).
func (a *Agent) forgives() bool { return a.config.AsksUser || a.config.OnFailure == Degrade }

// genericQuestion is what an agent that asks the user says without a model (RA-13).
const genericQuestion = "Could you tell me more about what you would like to know?"

// degrade makes a result of a failure: a question for an agent that asks, else what the
// steps before said, else an explanation (RA-13, RA-18, RA-20).
func (a *Agent) degrade(result *execution.Result, step execution.Step, cause error, tell func(event.Event) error) error {
	what := fmt.Sprintf("%s failed: %s", title(a.Name()), reason(cause))
	if a.config.AsksUser {
		result.Text = genericQuestion
	} else {
		result.Text = lastText(step)
		if result.Text == "" {
			result.Text = fmt.Sprintf("I could not finish this. %s.", what)
		}
		none := 0.0
		result.Confidence = &none
		result.Observations = append(result.Observations[:min(len(result.Observations), execution.MaxObservations-1)], what)
	}
	return tell(event.Warning{Reason: ReasonDegraded, Message: what})
}

// choose finds the route that a reply names, in any letter case: the reply itself, else
// the one that is named first as a whole word. It is empty when none is.
func choose(routes []string, reply string) string {
	reply = strings.ToLower(strings.TrimSpace(reply))
	best, at := "", len(reply)
	for _, route := range routes {
		name := strings.ToLower(route)
		if reply == name {
			return route
		}
		i := indexWord(reply, name)
		if i >= 0 && (i < at || i == at && len(route) > len(best)) {
			best, at = route, i
		}
	}
	return best
}

// indexWord is where word stands in text with no letter, digit or hyphen beside it, or -1.
func indexWord(text, word string) int {
	inside := func(r rune) bool { return r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r) }
	for from := 0; word != ""; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return -1
		}
		i += from
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		after, _ := utf8.DecodeRuneInString(text[i+len(word):])
		if !inside(before) && !inside(after) {
			return i
		}
		from = i + len(word)
	}
	return -1
}

// title is a name with a capital.
func title(name string) string { return strings.ToUpper(name[:1]) + name[1:] }

// reason is the part of an error that may be shown to a user. The text of an error that is
// not ours may hold anything.
func reason(err error) string {
	if e, ok := errors.AsType[*failure.Error](err); ok {
		return strings.TrimRight(e.Message, ".")
	}
	return "its model did not answer"
}
