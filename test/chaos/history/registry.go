package history

import (
	"github.com/anishathalye/porcupine"

	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// TurnRegistry is the name of model M2.
const TurnRegistry = "M2 turn registry"

// Ask requests the turn of a key.
type Ask struct{ Key, Payload string }

func (a Ask) part() string { return a.Key }

// Told is the answer.
type Told struct {
	Result   string // of the turn
	Conflict bool   // the key stands for another payload
}

// CheckTurnRegistry checks model M2: every call with a key and its payload gets the same result, and a call
// with another payload is rejected.
func CheckTurnRegistry(l *Log) []violation.Violation { return l.check(TurnRegistry, turnRegistry) }

// registration is the turn of a key; its zero is none.
type registration struct{ payload, result string }

var turnRegistry = porcupine.Model{
	Init: func() any { return registration{} },
	Step: func(state, in, out any) (bool, any) {
		s, asked, told := state.(registration), in.(Ask), out.(Told)
		switch {
		case told.Conflict:
			return s.payload != "" && s.payload != asked.Payload, s
		case s.payload == "":
			return true, registration{asked.Payload, told.Result}
		default:
			return s == registration{asked.Payload, told.Result}, s
		}
	},
}
