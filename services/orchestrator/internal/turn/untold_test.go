package turn

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// A step that was committed is told, whatever ends the turn before its worker came to say so:
// who watches is told of all that the session holds.
//
// Req: OC-3
func TestTurn_TellsOfAStepThatWasCommittedWhenItIsEnded(t *testing.T) {
	for name, c := range map[string]struct {
		agent   string // whose worker says nothing any more, behind its commit
		end     func(*testing.T, *Runner)
		outcome troupev1.TurnOutcome
	}{
		"stopped behind the last commit":   {"synthesis", stopped, completed},
		"cancelled behind the last commit": {"synthesis", cancelled, completed},
		"cancelled between two steps":      {"research", cancelled, cancelledOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t)
			committed := make(chan struct{})
			rig.on(c.agent, func(s *step) error {
				if err := s.event(&troupev1.Event{Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: "It is "}}}); err != nil {
					return err
				}
				if _, err := s.store(func(r *troupev1.StepResult) { r.Text = "It is committed." }); err != nil {
					return err
				}
				close(committed)
				<-s.stream.Context().Done()
				return s.stream.Context().Err()
			})
			runner := rig.runner(t, "one")
			done := start(t, runner, ask("s1", "r1"))
			receive(t, committed)
			c.end(t, runner)
			events := receive(t, done)
			require.Equal(t, c.outcome, resultOf(events).GetOutcome(), "%v", resultOf(events))
			require.Equal(t, "It is committed.", shown(c.agent, events))
			var told *troupev1.StepResult
			for _, e := range of(c.agent, events) {
				if e.GetStepFinished() != nil {
					require.Nil(t, told, "told twice")
					told = e.GetStepFinished().GetResult()
				}
			}
			kept, err := rig.memory.LoadHistory(t.Context(), session.Ref{Session: "s1"}, 0, 100)
			require.NoError(t, err)
			require.Equal(t, kept[len(kept)-1].Sequence, told.GetSequence())
			require.Nil(t, told.GetFailure())
		})
	}
}

func stopped(t *testing.T, r *Runner) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Close(ctx)
}

func cancelled(t *testing.T, r *Runner) {
	ref := trace.Ref{Trace: r.seats.driven(session.Ref{Session: "s1"}).turn.Trace}
	require.NoError(t, r.CancelTrace(t.Context(), ref, ""))
}
