package conversation

import "cmp"

// Rounds are the messages that one step of an agent added to what its model saw, besides the messages of the session: its
// task, its tool calls with their results, and what handlers added (LP-45). They follow the message After of the session.
type Rounds struct {
	Turn     int       // number of the turn in the session, from 1
	Step     int       // number of the step in the turn, from 1
	After    int64     // sequence of the last message of the session that the step had read (0 means that it had read none)
	Messages []Message // whole rounds, oldest message first
}

// Size returns the bytes of the messages, as the function Size counts them.
func (r Rounds) Size() int {
	n := 0
	for _, m := range r.Messages {
		n += Size(m)
	}
	return n
}

// Compare orders the rounds of an agent as they happened: by After, turn and step. It returns a negative number if r comes
// before other, and 0 if both are rounds of the same step.
func (r Rounds) Compare(other Rounds) int {
	return cmp.Or(cmp.Compare(r.After, other.After), cmp.Compare(r.Turn, other.Turn), cmp.Compare(r.Step, other.Step))
}
