package history

import (
	"github.com/anishathalye/porcupine"

	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// TurnRegistry is the name of model M2.
const TurnRegistry = "M2 turn registry"

// TurnRequest requests a turn under an idempotency key.
type TurnRequest struct{ Key, Payload string }

func (t TurnRequest) partition() string { return t.Key }

// TurnResponse is the answer.
type TurnResponse struct {
	Result   string // result of the turn
	Conflict bool   // the key was used with another payload
}

// CheckTurnRegistry checks model M2. Every call with a key and its payload gets the same result. A call with the
// key and another payload is rejected.
func CheckTurnRegistry(l *Log) []violation.Violation { return l.check(TurnRegistry, turnRegistry) }

// registration is the turn that was created for a key (the zero value means none).
type registration struct{ payload, result string }

var turnRegistry = porcupine.Model{
	Init: func() any { return registration{} },
	Step: func(state, in, out any) (bool, any) {
		s, asked, told := state.(registration), in.(TurnRequest), out.(TurnResponse)
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
