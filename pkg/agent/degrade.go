package agent

import (
	"errors"
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/internal/hookerror"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// lost reports whether the step is no longer this attempt's to go on with, or a handler has
// ended it.
func lost(err error) bool {
	return hookerror.Is(err) || failure.IsSuperseded(err)
}

// forgives reports whether a failed model still makes a result. An agent that asks the
// user always has something to ask (RA-13).
func (a *Agent) forgives() bool { return a.config.AsksUser || a.config.OnFailure == Degrade }

// genericQuestion is what an agent that asks the user says without a model (RA-13).
const genericQuestion = "Could you tell me more about what you would like to know?"

// degrade makes a result of a failure: a question for an agent that asks, else what the
// steps before said, else an explanation (RA-13, RA-18, RA-20).
func (t *turn) degrade(cause error) error {
	result := &t.result
	what := fmt.Sprintf("%s failed: %s", title(t.agent.Name()), reason(cause))
	if t.agent.config.AsksUser {
		t.text = genericQuestion
	} else {
		t.text = lastText(t.inv.Step)
		if t.text == "" {
			t.text = fmt.Sprintf("I could not finish this. %s.", what)
		}
		none := 0.0
		result.Confidence = &none
		result.Observations = append(result.Observations[:min(len(result.Observations), execution.MaxObservations-1)], what)
	}
	return t.control.Events.Emit(event.Warning{Reason: ReasonDegraded, Message: what})
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
