package session

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Req: C-1
func TestState_VerbsAndTurns(t *testing.T) {
	for _, row := range []struct {
		state               State
		takesTurn           bool
		pause, resume, shut State // the state after each verb (empty if the verb is rejected)
	}{
		{Created, true, Paused, Created, Closed},
		{Ready, true, Paused, Ready, Closed},
		{Busy, false, "", Busy, ""},
		{InputRequired, true, Paused, InputRequired, Closed},
		{AuthRequired, true, Paused, AuthRequired, Closed},
		{Paused, true, Paused, Ready, Closed},
		{Failed, true, Paused, Failed, Closed},
		{Closed, false, Closed, Ready, Closed},
	} {
		require.Equal(t, row.takesTurn, row.state.TakesTurn(), row.state)
		for verb, want := range map[Verb]State{Pause: row.pause, Resume: row.resume, Close: row.shut, "": row.state} {
			to, ok := row.state.Apply(verb)
			require.Equal(t, want != "", ok, "%s %s", verb, row.state)
			if ok {
				require.Equal(t, want, to, "%s %s", verb, row.state)
				again, ok := to.Apply(verb)
				require.True(t, ok)
				require.Equal(t, to, again, "%s twice is once", verb)
			} else {
				require.Equal(t, row.state, to)
			}
		}
	}
}

func TestOutcome_SessionState(t *testing.T) {
	for outcome, want := range map[Outcome]State{
		OutcomeOpen: Busy, OutcomeCompleted: Ready, OutcomeCancelled: Ready, OutcomeFailed: Failed,
		OutcomeInputRequired: InputRequired, OutcomeAuthRequired: AuthRequired,
	} {
		require.Equal(t, want, outcome.SessionState(), outcome)
		require.Equal(t, outcome != OutcomeOpen, outcome.SessionState().TakesTurn())
	}
}
