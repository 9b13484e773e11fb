package verify

import (
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/test/chaos/ledger"
)

// FaultCounts counts the events that a run must contain to prove anything.
type FaultCounts struct {
	Takeovers int // steps that another attempt continued
	Resets    int // text_retracted events that a client received
	Replays   int // results of tools that one attempt called and another one committed
	Unknown   int // tools in doubt, as their model read
}

// CountFaults counts these events in the streams of a run, each once per turn.
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
				s.Resets++
			case e.GetStepStarted() != nil && e.GetAttempt() > 1:
				s.Takeovers++
			case e.GetStepFinished() != nil:
				_, results, _ := strings.Cut(e.GetStepFinished().GetResult().GetText(), ": ")
				for result := range strings.SplitSeq(results, " | ") {
					if caller, ok := callers[result]; ok && caller != e.GetInstanceId() {
						s.Replays++
					}
					if strings.HasPrefix(result, unknown) {
						s.Unknown++
					}
				}
			}
		}
	}
	return s
}
