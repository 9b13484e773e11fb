package verify

import (
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/test/chaos/ledger"
)

// FaultCounts counts the events that a run must contain to prove anything.
type FaultCounts struct {
	Takeovers       int // steps that a later attempt continued
	Retractions     int // text_retracted events that a client received
	ReplayedResults int // tool results that one attempt produced and another committed
	InDoubt         int // tool calls that were in doubt
}

// CountFaults counts the faults that the streams of a run show. It counts each event once, although several
// streams of a turn contain it.
func CountFaults(streams []Stream, calls []ledger.Call) (s FaultCounts) {
	callers := map[string]string{} // by receipt
	for i, c := range calls {
		callers[fmt.Sprintf("%s#%d", c.Kind, i+1)] = c.Worker
	}
	counted := map[string]bool{}
	for _, stream := range streams {
		for _, e := range stream.durableEvents() {
			at := fmt.Sprintf("%s %d", stream.Mark, e.GetSequence())
			if counted[at] {
				continue
			}
			counted[at] = true
			switch {
			case e.GetTextRetracted() != nil:
				s.Retractions++
			case e.GetStepStarted() != nil && e.GetAttempt() > 1:
				s.Takeovers++
			case e.GetStepFinished() != nil:
				_, results, _ := strings.Cut(e.GetStepFinished().GetResult().GetText(), ": ")
				for result := range strings.SplitSeq(results, " | ") {
					if caller, ok := callers[result]; ok && caller != e.GetInstanceId() {
						s.ReplayedResults++
					}
					if strings.HasPrefix(result, inDoubtPrefix) {
						s.InDoubt++
					}
				}
			}
		}
	}
	return s
}
