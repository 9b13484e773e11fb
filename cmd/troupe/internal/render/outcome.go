package render

import (
	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/process"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// NeedsUser reports whether a turn with this outcome waits for the user.
func NeedsUser(o troupev1.TurnOutcome) bool {
	return o == troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED || o == troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED
}

func outcomeError(o troupev1.TurnOutcome) error {
	switch o {
	case troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED:
		return nil
	case troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED:
		return console.ExitCode(console.ExitInputRequired)
	default:
		return console.ExitCode(process.ExitError)
	}
}
