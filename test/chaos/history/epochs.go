package history

import (
	"github.com/anishathalye/porcupine"

	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// Epochs is the name of model M3.
const Epochs = "M3 epochs"

// EpochRequest asks for the epoch of a turn, to begin the turn or to take it over.
type EpochRequest struct{ Session string }

func (e EpochRequest) partition() string { return e.Session }

// GrantedEpoch is the epoch that the store granted (0 if there was no answer).
type GrantedEpoch struct{ Epoch int64 }

// Write is a write under an epoch.
type Write struct {
	Session string
	Epoch   int64
}

func (w Write) partition() string { return w.Session }

// WriteResult says whether a write was accepted or fenced.
type WriteResult struct{ Fenced bool }

// CheckEpochs checks model M3. Epochs grow, a write is accepted only under the latest epoch, and it is fenced only
// if a later epoch exists.
func CheckEpochs(l *Log) []violation.Violation { return l.check(Epochs, epochs.ToModel()) }

// fenceState holds the latest epoch of a session. replyLost means that the reply that granted a later epoch was
// lost.
type fenceState struct {
	epoch     int64
	replyLost bool
}

var epochs = porcupine.NondeterministicModel{
	Init: func() []any { return []any{fenceState{}} },
	Step: func(state, in, out any) []any {
		s := state.(fenceState)
		switch in := in.(type) {
		case EpochRequest:
			switch epoch := out.(GrantedEpoch).Epoch; {
			case epoch == 0:
				return []any{s, fenceState{s.epoch, true}}
			case epoch > s.epoch:
				return []any{fenceState{epoch: epoch}}
			}
		case Write:
			latest := in.Epoch == s.epoch && !s.replyLost
			if latest != out.(WriteResult).Fenced {
				return []any{s}
			}
		}
		return nil
	},
}
