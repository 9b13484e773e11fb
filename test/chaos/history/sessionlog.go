package history

import (
	"hash/fnv"
	"strconv"

	"github.com/anishathalye/porcupine"

	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// SessionLog is the name of model M1.
const SessionLog = "M1 session log"

// Append adds messages to a session, once for its key.
type Append struct{ Session, Key string }

func (a Append) partition() string { return a.Session }

// Appended is the sequence of the last appended message.
type Appended struct{ Sequence int64 }

// Load reads a session.
type Load struct{ Session string }

func (l Load) partition() string { return l.Session }

// Loaded is the content of a session.
type Loaded struct {
	Sequence int64  // of its last message (0 if it is empty)
	Chain    uint64 // hash of its messages
}

// Chain extends a hash by appended messages. Sessions with the same messages in the same order have the same
// hash.
func Chain(before uint64, key string, sequence int64) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strconv.FormatUint(before, 10) + "|" + key + "|" + strconv.FormatInt(sequence, 10)))
	return h.Sum64()
}

// CheckSessionLog checks model M1: the appends to a session form one sequence, each key is
// appended once, and a load sees exactly what was appended before it.
func CheckSessionLog(l *Log) []violation.Violation { return l.check(SessionLog, sessionLog) }

// logState is the state of a session. Its entries form a linked list, newest first.
type logState struct {
	sequence int64
	chain    uint64
	last     *entry
}

type entry struct {
	key      string
	sequence int64
	previous *entry
}

var sessionLog = porcupine.Model{
	Init: func() any { return logState{} },
	Step: func(state, in, out any) (bool, any) {
		s := state.(logState)
		switch in := in.(type) {
		case Load:
			seen := out.(Loaded)
			return seen.Sequence == s.sequence && seen.Chain == s.chain, s
		case Append:
			sequence := out.(Appended).Sequence
			for e := s.last; e != nil; e = e.previous {
				if e.key == in.Key {
					return e.sequence == sequence, s // a repeated append
				}
			}
			return sequence > s.sequence, logState{sequence, Chain(s.chain, in.Key, sequence), &entry{in.Key, sequence, s.last}}
		default:
			return false, s
		}
	},
	Equal: func(a, b any) bool {
		x, y := a.(logState), b.(logState)
		return x.sequence == y.sequence && x.chain == y.chain
	},
}
