package history

import (
	"github.com/anishathalye/porcupine"

	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// Epochs is the name of model M3.
const Epochs = "M3 epochs"

// Grant asks for the epoch of a turn: to begin it, or to take it over.
type Grant struct{ Session string }

func (g Grant) partition() string { return g.Session }

// Granted is the granted epoch (0 if there was no answer).
type Granted struct{ Epoch int64 }

// Write writes under an epoch.
type Write struct {
	Session string
	Epoch   int64
}

func (w Write) partition() string { return w.Session }

// Written says whether the write was accepted.
type Written struct{ Fenced bool }

// CheckEpochs checks model M3: epochs grow, a write is accepted only under the latest epoch, and fenced only if
// there is a later one.
func CheckEpochs(l *Log) []violation.Violation { return l.check(Epochs, epochs.ToModel()) }

// fence is the latest epoch of a session. lost means that the reply that granted a later epoch was lost.
type fence struct {
	epoch     int64
	replyLost bool
}

var epochs = porcupine.NondeterministicModel{
	Init: func() []any { return []any{fence{}} },
	Step: func(state, in, out any) []any {
		s := state.(fence)
		switch in := in.(type) {
		case Grant:
			switch epoch := out.(Granted).Epoch; {
			case epoch == 0:
				return []any{s, fence{s.epoch, true}}
			case epoch > s.epoch:
				return []any{fence{epoch: epoch}}
			}
		case Write:
			latest := in.Epoch == s.epoch && !s.replyLost
			if latest != out.(Written).Fenced {
				return []any{s}
			}
		}
		return nil
	},
}
