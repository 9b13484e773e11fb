package history

import (
	"hash/fnv"
	"strconv"

	"github.com/anishathalye/porcupine"

	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// SessionLog is the name of model M1.
const SessionLog = "M1 session log"

// Append adds messages to a session. A second Append with the same key has no effect.
type Append struct{ Session, Key string }

func (a Append) partition() string { return a.Session }

// AppendResult holds the sequence of the last appended message.
type AppendResult struct{ Sequence int64 }

// Load reads a session.
type Load struct{ Session string }

func (l Load) partition() string { return l.Session }

// LoadResult summarizes the content of a session.
type LoadResult struct {
	Sequence int64  // sequence of the last message (0 if there is none)
	Hash     uint64 // hash of its messages
}

// ExtendHash extends a hash by appended messages. Sessions with the same messages in the same order have the same
// hash.
func ExtendHash(before uint64, key string, sequence int64) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strconv.FormatUint(before, 10) + "|" + key + "|" + strconv.FormatInt(sequence, 10)))
	return h.Sum64()
}

// CheckSessionLog checks model M1. The appends to a session form one sequence, each key is appended once, and a
// load sees exactly the earlier appends.
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
			seen := out.(LoadResult)
			return seen.Sequence == s.sequence && seen.Hash == s.chain, s
		case Append:
			sequence := out.(AppendResult).Sequence
			for e := s.last; e != nil; e = e.previous {
				if e.key == in.Key {
					return e.sequence == sequence, s // a repeated append
				}
			}
			return sequence > s.sequence, logState{sequence, ExtendHash(s.chain, in.Key, sequence), &entry{in.Key, sequence, s.last}}
		default:
			return false, s
		}
	},
	Equal: func(a, b any) bool {
		x, y := a.(logState), b.(logState)
		return x.sequence == y.sequence && x.chain == y.chain
	},
}
