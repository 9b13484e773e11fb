// Package verify contains the checks of a chaos run that need no search. They cover event streams, tool calls, the
// final sessions, and the keys in Redis.
package verify

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// The names of the checks of streams.
const (
	StreamContiguous    = "stream contiguous"
	StreamEndsOnce      = "stream ends once"
	StreamSameForAll    = "stream same for all"
	StreamTextCommitted = "stream text is committed"
	StreamAttemptsGrow  = "stream attempts grow"
)

// Stream holds the events that one call of Orchestrate or WatchTrace received.
type Stream struct {
	Mark              string // name of the request: its session id and request id
	After             uint64 // the sequence after which it began
	IsFirst           bool   // it is the first stream of its turn, so it must have received all text
	EndedWithoutError bool   // it ended without an error
	Events            []*troupev1.Event
}

// CheckStreams checks each stream and compares all streams of a request with each other.
func CheckStreams(streams []Stream) (found []violation.Violation) {
	stored := map[string]*troupev1.Event{}
	for _, s := range streams {
		found = append(found, s.checkSequences()...)
		found = append(found, s.checkResult()...)
		found = append(found, s.checkAttempts()...)
		found = append(found, s.checkText()...)
		for _, e := range s.durableEvents() {
			at := fmt.Sprintf("%s event %d", s.Mark, e.GetSequence())
			if before, ok := stored[at]; ok && !proto.Equal(before, e) {
				found = append(found, violation.Newf(StreamSameForAll, "%s was %v, and is %v", at, before, e))
			}
			stored[at] = e
		}
	}
	return found
}

// durableEvents returns the events of the stream that the mesh stores.
func (s Stream) durableEvents() []*troupev1.Event {
	return slices.DeleteFunc(slices.Clone(s.Events), func(e *troupev1.Event) bool { return e.GetSequence() == 0 })
}

// checkSequences checks that sequences grow by one from the start of the stream, so that events are ordered,
// unique and complete.
func (s Stream) checkSequences() []violation.Violation {
	next := s.After + 1
	for _, e := range s.durableEvents() {
		if e.GetSequence() != next {
			return []violation.Violation{violation.Newf(StreamContiguous, "%s: want event %d, got %d: %v", s.Mark, next, e.GetSequence(), e)}
		}
		next++
	}
	return nil
}

// checkResult checks that a stream has at most one turn result and nothing after it. A stream without an error
// must have one.
func (s Stream) checkResult() []violation.Violation {
	for i, e := range s.Events {
		if e.GetTurnResult() != nil && i < len(s.Events)-1 {
			return []violation.Violation{violation.Newf(StreamEndsOnce, "%s: %d events behind the turn result, the first is %v", s.Mark, len(s.Events)-1-i,
				s.Events[i+1])}
		}
	}
	if n := len(s.Events); s.EndedWithoutError && n > 0 && s.Events[n-1].GetTurnResult() == nil {
		return []violation.Violation{violation.Newf(StreamEndsOnce, "%s: ended with %v and no turn result", s.Mark, s.Events[n-1])}
	}
	return nil
}

// checkAttempts checks that the attempts of a step grow, and that a text_retracted event precedes each attempt
// except the first. It skips streams that began later.
func (s Stream) checkAttempts() []violation.Violation {
	if s.After > 0 {
		return nil
	}
	attempt, reset := map[int32]int32{}, map[int32]bool{}
	for _, e := range s.durableEvents() {
		step := e.GetStep()
		switch {
		case e.GetTextRetracted() != nil:
			reset[step] = true
		case e.GetStepStarted() == nil:
		case e.GetAttempt() <= attempt[step] || attempt[step] > 0 && !reset[step]:
			return []violation.Violation{violation.Newf(StreamAttemptsGrow,
				"%s: step %d started as attempt %d behind attempt %d, part reset between them: %t", s.Mark, step, e.GetAttempt(), attempt[step], reset[step])}
		default:
			attempt[step], reset[step] = e.GetAttempt(), false
		}
	}
	return nil
}

// checkText checks that the text deltas after the last text_retracted event form the committed text. A stream that
// began later has only the end of the text.
func (s Stream) checkText() []violation.Violation {
	said := map[int32]string{}
	for _, e := range s.Events {
		switch step := e.GetStep(); {
		case e.GetTextDelta() != nil:
			said[step] += e.GetTextDelta().GetText()
		case e.GetTextRetracted() != nil:
			said[step] = ""
		case e.GetStepFinished() != nil && e.GetStepFinished().GetResult().GetFailure() == nil:
			committed := e.GetStepFinished().GetResult().GetText()
			if said[step] == committed || !s.IsFirst && strings.HasSuffix(committed, said[step]) {
				continue
			}
			return []violation.Violation{violation.Newf(StreamTextCommitted, "%s step %d: streamed %q, committed %q", s.Mark, step, said[step], committed)}
		}
	}
	return nil
}
