package history

import (
	"github.com/anishathalye/porcupine"

	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// TurnRegistry is the name of model M2.
const TurnRegistry = "M2 turn registry"

// Request requests the turn of a key.
type Request struct{ Key, Payload string }

func (a Request) partition() string { return a.Key }

// Response is the answer.
type Response struct {
	Result   string // of the turn
	Conflict bool   // the key stands for another payload
}

// CheckTurnRegistry checks model M2: every call with a key and its payload gets the same result, and a call
// with another payload is rejected.
func CheckTurnRegistry(l *Log) []violation.Violation { return l.check(TurnRegistry, turnRegistry) }

// registration is the turn that a key created (the zero value means none).
type registration struct{ payload, result string }

var turnRegistry = porcupine.Model{
	Init: func() any { return registration{} },
	Step: func(state, in, out any) (bool, any) {
		s, asked, told := state.(registration), in.(Request), out.(Response)
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
