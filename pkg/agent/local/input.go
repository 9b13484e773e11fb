package local

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local/internal/opening"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Input is what a turn begins with: a text, answers to waiting calls, or neither.
type Input struct {
	Text string // what the user says, 1 byte to conversation.MaxMessageBytes
	// Continue continues the conversation where it is, and appends no message of the user (LP-8). Text is empty
	// then. A turn that was lost with its process continues where it stopped, and repeats nothing that is in its
	// journal. A stored turn whose answer was not delivered here does not run again: its event.TurnResult is the
	// only event. Continue is rejected while calls wait for Answers.
	Continue bool
	// Answers continue the turn with pending calls (Session.Pending), and append no message of the user. At least
	// one call gets an answer. Calls without an answer stay pending, and no earlier work is repeated (LP-32). Text
	// is empty then and Continue false. By defaults to the actor of Auth. After an error of the store the same
	// Answers, or Continue, continue the same turn. A Text instead abandons the pending calls.
	Answers []execution.Answer
	// Auth holds the actor and the credentials of the turn. Tools and the model can read it during this turn only.
	// It is never stored (LP-18).
	Auth          execution.Auth
	MaxIterations int // overrides the agent's limit (0 keeps the agent's own, CO-6)
}

func (in Input) check() error {
	wrong := func(format string, args ...any) error {
		return failure.Newf(failure.UserInvalidInput, "local.Turn", format, args...)
	}
	switch {
	case in.Continue && in.Text != "":
		return wrong("Text: a turn that continues has none; leave out one of Text and Continue")
	case len(in.Answers) > 0 && (in.Continue || in.Text != ""):
		return wrong("Answers: a turn that brings them has neither Text nor Continue; leave these out")
	case len(in.Answers) > 0 && slices.ContainsFunc(in.Answers, func(a execution.Answer) bool { return !utf8.ValidString(a.Text + a.By) }):
		return wrong("Answers: a text is not valid UTF-8")
	case !in.isSilent() && strings.TrimSpace(in.Text) == "":
		return wrong("Text is empty; say something, or set Continue to continue without a text")
	case len(in.Text) > conversation.MaxMessageBytes:
		return wrong("Text: %d bytes are too long; send at most %d", len(in.Text), conversation.MaxMessageBytes)
	case !utf8.ValidString(in.Text):
		return wrong("Text is not valid UTF-8")
	case in.MaxIterations < 0 || in.MaxIterations > agent.MaxIterations:
		return wrong("MaxIterations %d: use 0 to %d", in.MaxIterations, agent.MaxIterations)
	}
	return nil
}

// isSilent reports whether the input has no text of the user.
func (in Input) isSilent() bool { return in.Continue || len(in.Answers) > 0 }

// message returns the user's message (zero if the user said nothing).
func (in Input) message() conversation.Message {
	if in.isSilent() {
		return conversation.Message{}
	}
	return conversation.User(in.Text)
}

func (in Input) request() opening.Request {
	return opening.Request{Continue: in.Continue, Answers: in.Answers, Actor: in.Auth.Actor}
}
