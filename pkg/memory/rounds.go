package memory

import (
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// RoundMessage is a message of the tool rounds that a Commit stores.
type RoundMessage struct {
	conversation.Message
	// Entry is the number of the entry in the step's journal that has the text and the tool calls of the message, so
	// that they are not stored twice (0 means that the message itself has them).
	Entry int
}

// Resolve returns the message with the text and the tool calls that it takes from the journal of its step. It returns false
// if the journal lacks the entry.
func (r RoundMessage) Resolve(journal []execution.Entry) (conversation.Message, bool) {
	if r.Entry == 0 {
		return r.Message, true
	}
	i := slices.IndexFunc(journal, func(e execution.Entry) bool { return e.Number == r.Entry && e.Phase == execution.Done })
	if i < 0 {
		return conversation.Message{}, false
	}
	m := r.Message
	if journal[i].Tool == "" {
		m.Text, m.ToolCalls = journal[i].Reply.Text, journal[i].Reply.ToolCalls
	} else {
		m.Text = journal[i].Text
	}
	return m, true
}

// checkRounds rejects rounds that cannot be stored. Modes: user_invalid_input.
func checkRounds(op string, c Commit) error {
	size := 0
	for i, r := range c.Rounds {
		size += conversation.Size(r.Message)
		if r.Role == conversation.RoleSummary || r.Entry < 0 {
			return failure.Newf(failure.UserInvalidInput, op, "rounds[%d]: a round has no summary, and no entry below 0; leave it out", i).
				With("fields", "rounds")
		}
	}
	switch {
	case len(c.Rounds) > MaxWindow || size > MaxWindowBytes:
		return failure.Newf(failure.UserInvalidInput, op, "rounds: %d messages of %d bytes are too many; leave out the oldest of more than %d messages or %d bytes",
			len(c.Rounds), size, MaxWindow, MaxWindowBytes).With("fields", "rounds")
	case len(c.Rounds) > 0 && len(c.Result.Pending) > 0:
		return failure.New(failure.UserInvalidInput, op, "rounds: a step whose calls wait has none yet; send them when the step continues").
			With("fields", "rounds")
	}
	return nil
}
