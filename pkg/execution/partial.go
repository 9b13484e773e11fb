package execution

import (
	"maps"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Recovery is what is best done about a turn that failed (contract OC-26).
type Recovery string

// The strategies.
const (
	Manual              Recovery = "manual"                // somebody has to look
	RetryFailedSteps    Recovery = "retry_failed_steps"    // nearly all is done
	RetryFromCheckpoint Recovery = "retry_from_checkpoint" // much is done
	RetryAll            Recovery = "retry_all"
)

// Limits of what a partial result quotes.
const (
	MaxPartialData = 64  // texts and observations
	MaxPartialText = 500 // characters of one
)

// Partial is what a turn had when it failed (contract OC-26).
type Partial struct {
	Trace     string
	Completed []int // steps that were committed, in order
	Failed    []int // steps that failed, or were not ended, in order
	Mode      failure.Mode
	Point     int               // the step in which the turn failed; 0: between steps
	Total     int               // steps of the plan; 0: not known
	Results   map[int]Result    // by step
	Ended     map[int]time.Time // by step, as far as it is known
}

// Ratio is the part of the steps that is completed, 0 to 1: of all, or else of those that
// were begun, and 0 when there are none.
func (p Partial) Ratio() float64 {
	total := p.Total
	if total == 0 {
		total = len(p.Completed) + len(p.Failed)
	}
	if total == 0 {
		return 0
	}
	return min(1, float64(len(p.Completed))/float64(total))
}

// Recoverable reports whether another turn may go on from here: the failure may pass, and
// something is done.
func (p Partial) Recoverable() bool { return p.Mode.Retryable() && p.Ratio() > 0 }

// Remaining is how many steps are not completed.
func (p Partial) Remaining() int {
	return max(p.Total, len(p.Completed)+len(p.Failed)) - len(p.Completed)
}

// Recovery is what is best done.
func (p Partial) Recovery() Recovery {
	switch ratio := p.Ratio(); {
	case p.Mode.Terminal() || !p.Mode.Retryable():
		return Manual
	case ratio >= 0.75:
		return RetryFailedSteps
	case ratio >= 0.25:
		return RetryFromCheckpoint
	default:
		return RetryAll
	}
}

// Data are texts and observations of the completed steps, in order, each cut to
// MaxPartialText, and at most MaxPartialData of them.
func (p Partial) Data() []string {
	var all []string
	for _, step := range slices.Sorted(maps.Keys(p.Results)) {
		r := p.Results[step]
		if !slices.Contains(p.Completed, step) {
			continue
		}
		for _, text := range append([]string{r.Text}, r.Observations...) {
			if text != "" && len(all) < MaxPartialData {
				all = append(all, conversation.Brief(text, MaxPartialText))
			}
		}
	}
	return all
}
