// Package failedturn describes how far a turn got before it failed, and how to recover it (contract OC-26).
package failedturn

import (
	"maps"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Recovery is a strategy for continuing after a failed turn.
type Recovery string

// The strategies.
const (
	ManualRecovery      Recovery = "manual"                // a person must decide
	RetryFailedSteps    Recovery = "retry_failed_steps"    // at least three quarters of the steps are completed
	RetryFromCheckpoint Recovery = "retry_from_checkpoint" // at least a quarter of the steps are completed
	RetryAll            Recovery = "retry_all"
)

// Limits of Progress.Data.
const (
	MaxTexts      = 64  // texts and observations
	MaxTextLength = 500 // characters of one text
)

// Progress describes how far a turn got before it failed.
type Progress struct {
	Trace          string
	CompletedSteps []int // numbers of the committed steps, in order
	FailedSteps    []int // numbers of the steps that failed or did not finish, in order
	Mode           failure.Mode
	FailedAtStep   int                      // number of the step in which the turn failed (0 means between steps)
	PlannedSteps   int                      // planned steps (0 means unknown)
	Results        map[int]execution.Result // results by step
	EndTimes       map[int]time.Time        // end times by step, where known
}

// CompletedRatio returns the share of steps that are completed, from 0 to 1. If the number of planned steps is
// unknown, it is relative to the steps that were started. It is 0 if there are no steps.
func (p Progress) CompletedRatio() float64 {
	total := p.PlannedSteps
	if total == 0 {
		total = len(p.CompletedSteps) + len(p.FailedSteps)
	}
	if total == 0 {
		return 0
	}
	return min(1, float64(len(p.CompletedSteps))/float64(total))
}

// IsRecoverable reports whether another turn may resume here. The failure must be retryable, and at least one step
// must be completed.
func (p Progress) IsRecoverable() bool { return p.Mode.Retryable() && p.CompletedRatio() > 0 }

// RemainingSteps returns the number of steps that are not completed.
func (p Progress) RemainingSteps() int {
	return max(p.PlannedSteps, len(p.CompletedSteps)+len(p.FailedSteps)) - len(p.CompletedSteps)
}

// RecommendedRecovery returns the best strategy for the failure mode and the completed share of the steps.
func (p Progress) RecommendedRecovery() Recovery {
	switch ratio := p.CompletedRatio(); {
	case p.Mode.Terminal() || !p.Mode.Retryable():
		return ManualRecovery
	case ratio >= 0.75:
		return RetryFailedSteps
	case ratio >= 0.25:
		return RetryFromCheckpoint
	default:
		return RetryAll
	}
}

// CompletedTexts returns the texts and observations of the completed steps in order. It returns at most MaxTexts,
// each cut to MaxTextLength.
func (p Progress) CompletedTexts() []string {
	var all []string
	for _, step := range slices.Sorted(maps.Keys(p.Results)) {
		r := p.Results[step]
		if !slices.Contains(p.CompletedSteps, step) {
			continue
		}
		for _, text := range append([]string{r.Text}, r.Observations...) {
			if text != "" && len(all) < MaxTexts {
				all = append(all, conversation.Excerpt(text, MaxTextLength))
			}
		}
	}
	return all
}
