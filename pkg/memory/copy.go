package memory

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Copy is the data that a new session copies from an older one.
type Copy struct {
	// History has the messages before the turn's own message, oldest first. The first may be a summary. The store
	// numbers them from 1 and keeps their times. They belong to no turn, so their turn number is 0.
	History []conversation.Message
	// StepMessages are the messages of the inherited steps. They belong to the new turn and follow its own
	// message.
	StepMessages []conversation.Message
	// State has keys of the session's own scope.
	State map[string]json.RawMessage
	// Rounds are the tool rounds of each agent, by the sequence After, which is a sequence of the new session. Rounds
	// of inherited steps belong to turn 1, earlier ones to turn 0.
	Rounds map[string][]conversation.Rounds
}

// SplitSummary returns the summary with which the history begins (nil if it has none), and the messages after it.
func (c *Copy) SplitSummary() (summary *conversation.Message, messages []conversation.Message) {
	if c == nil {
		return nil, nil
	}
	if len(c.History) > 0 && c.History[0].Role == conversation.RoleSummary {
		return &c.History[0], c.History[1:]
	}
	return nil, c.History
}

// checkPredecessor rejects a predecessor that conflicts with other fields of the request. Modes:
// user_invalid_input.
func checkPredecessor(op string, b Begin) error {
	invalid := func(field, message string) error {
		return failure.New(failure.UserInvalidInput, op, field+": "+message).With("fields", field)
	}
	switch {
	case b.Predecessor.Resumes != "" && (len(b.UserMessages()) > 0 || b.Predecessor.Continues != "" || b.Predecessor.Copy != nil):
		return invalid("resumes_turn_id", "a turn that resumes another one has no message, continues no waiting turn, and copies nothing; leave the others out")
	case b.Predecessor.Copy != nil && (len(b.UserMessages()) == 0 || b.Predecessor.Continues != ""):
		return invalid("copy", "a session that begins with a copy begins with a turn that has a message; add it")
	case len(b.Predecessor.Inherited) > 0 && b.Predecessor.Resumes == "" && b.Predecessor.Copy == nil:
		return invalid("inherited", "inherited steps need an earlier turn; name the failed turn in resumes_turn_id, or copy a session")
	}
	last := 0
	for _, r := range b.Predecessor.Inherited {
		if r.Step <= last {
			return invalid("inherited", "the steps must be in the order of their numbers, each once")
		}
		last = r.Step
	}
	return b.Predecessor.Copy.check(op)
}

// check rejects an invalid or too large copy. It accepts nil. Modes: user_invalid_input.
func (c *Copy) check(op string) error {
	if c == nil {
		return nil
	}
	invalid := func(message string) error {
		return failure.New(failure.UserInvalidInput, op, "copy.state: "+message).With("fields", "copy.state")
	}
	bytes := 0
	for _, key := range slices.Sorted(maps.Keys(c.State)) {
		value := c.State[key]
		if ScopeOf(key) != ScopeSession {
			return invalid("only keys of the session itself are copied; leave the others out")
		}
		if err := CheckDelta(op, map[string]json.RawMessage{key: value}); err != nil {
			return err
		}
		bytes += len(key) + len(value)
	}
	if len(c.State) > MaxStateKeys || bytes > MaxStateBytes {
		return invalid("more keys or bytes than a session may hold; leave some out")
	}
	messages := len(c.History) + len(c.StepMessages)
	size := 0
	for _, m := range slices.Concat(c.History, c.StepMessages) {
		size += conversation.Size(m)
	}
	if messages > MaxWindow || size > 3*MaxWindowBytes {
		return failure.Newf(failure.UserInvalidInput, op, "copy: %d messages of %d bytes are too many; leave out the oldest", messages, size).With("fields",
			"copy")
	}
	return c.checkRounds(op, int64(messages+1))
}

// checkRounds rejects rounds that are too large, not in order, or after a message that the copy does not have.
func (c *Copy) checkRounds(op string, last int64) error {
	size := 0
	for _, agent := range slices.Sorted(maps.Keys(c.Rounds)) {
		after := int64(0)
		for _, r := range c.Rounds[agent] {
			size += r.Size()
			if r.After < after || r.After > last {
				return failure.Newf(failure.UserInvalidInput, op, "copy.rounds: after is %d; use the sequence of a message of the new session, 0 to %d, in order",
					r.After, last).With("fields", "copy.rounds")
			}
			after = r.After
		}
	}
	if size > MaxWindowBytes {
		return failure.Newf(failure.UserInvalidInput, op, "copy.rounds: %d bytes are too many; leave out the oldest of more than %d", size, MaxWindowBytes).
			With("fields", "copy.rounds")
	}
	return nil
}

// InheritedSteps returns the results of the inherited steps, each with its Inherited field set.
func (b Begin) InheritedSteps() []execution.Result {
	var all []execution.Result
	for _, r := range b.Predecessor.Inherited {
		r.Inherited = true
		all = append(all, r)
	}
	return all
}
