package workflow

import (
	"maps"

	"github.com/troupe-dev/troupe/internal/retry"
)

// ErrorStrategy replaces what the steps of a workflow declare in onError, for one turn (OC-19). The empty ErrorStrategy
// replaces nothing.
type ErrorStrategy string

// The error strategies.
const (
	FailFast ErrorStrategy = "fail_fast" // the turn fails
	Continue ErrorStrategy = "continue"  // the turn continues, and the step is marked as failed
	Retry    ErrorStrategy = "retry"     // the step is retried, by the exponential policy if it declares none; then the turn fails
	Fallback ErrorStrategy = "fallback"  // the declared fallback follows; the turn fails without one
)

// WithErrorStrategy returns the workflow with the strategy for all of its steps. An unknown strategy changes nothing.
func (w *Workflow) WithErrorStrategy(s ErrorStrategy) *Workflow {
	replace := map[ErrorStrategy]func(OnError) OnError{
		FailFast: func(OnError) OnError { return OnError{} },
		Continue: func(OnError) OnError { return OnError{Continue: true} },
		Retry: func(declared OnError) OnError {
			if declared.Retries == 0 {
				declared.Policy, _ = retry.ParsePolicy("exponential") // the name is known
			}
			return OnError{Policy: declared.Policy}
		},
		Fallback: func(declared OnError) OnError { return OnError{Fallback: declared.Fallback} },
	}[s]
	if replace == nil {
		return w
	}
	other := *w
	other.Steps = maps.Clone(w.Steps)
	for name, step := range other.Steps {
		step.OnError = replace(step.OnError)
		other.Steps[name] = step
	}
	return &other
}
