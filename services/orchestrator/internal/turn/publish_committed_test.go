package turn

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// startWatchingForText runs a request to its end in the background. It sends the trace id on seen when the client
// receives the text, and all events on done.
func startWatchingForText(t *testing.T, r *Runner, req request.Request, text string) (seen chan string, done chan []*troupev1.Event) {
	t.Helper()
	seen, done = make(chan string, 1), make(chan []*troupev1.Event, 1)
	go func() {
		var all []*troupev1.Event
		for e, err := range r.Orchestrate(t.Context(), req) {
			if err != nil {
				t.Error(err)
				break
			}
			all = append(all, e)
			if e.GetTextDelta().GetText() == text {
				seen <- e.GetTraceId()
			}
		}
		done <- all
	}()
	return seen, done
}

// A committed step is published even if the turn ends before the worker reports the result. Watchers see every
// step that the session contains.
func TestTurn_PublishesACommittedStepWhenItEnds(t *testing.T) {
	for name, c := range map[string]struct {
		agent   string // agent whose worker sends nothing after its commit
		end     func(*testing.T, *Runner, trace.Ref)
		outcome troupev1.TurnOutcome
	}{
		"stopped behind the last commit":   {"synthesis", closeRunner, outcomeCompleted},
		"cancelled behind the last commit": {"synthesis", cancelTrace, outcomeCompleted},
		"cancelled between two steps":      {"research", cancelTrace, cancelledOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t)
			shownSome, committed := make(chan struct{}), make(chan struct{})
			rig.setScript(c.agent, func(s *scriptedStep) error {
				if err := s.sendEvent(&troupev1.Event{Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: "It is "}}}); err != nil {
					return err
				}
				<-shownSome
				if _, err := s.storeResult(func(r *troupev1.StepResult) { r.Text = "It is committed." }); err != nil {
					return err
				}
				close(committed)
				<-s.stream.Context().Done()
				return s.stream.Context().Err()
			})
			runner := rig.newRunner(t, "one")
			seen, done := startWatchingForText(t, runner, textRequest("s1", "r1"), "It is ")
			ref := trace.Ref{Trace: receive(t, seen)}
			close(shownSome)
			receive(t, committed)
			c.end(t, runner, ref)
			events := receive(t, done)
			require.Equal(t, c.outcome, turnResult(events).GetOutcome(), "%v", turnResult(events))
			require.Equal(t, "It is committed.", shownText(c.agent, events))
			var told *troupev1.Event
			resets := 0
			for _, e := range eventsOfAgent(c.agent, events) {
				if e.GetTextRetracted() != nil {
					resets++
				}
				if e.GetStepFinished() != nil {
					require.Nil(t, told, "told twice")
					told = e
				}
			}
			require.Equal(t, 1, resets, "what was shown before is void")
			require.Equal(t, c.agent+"-1", told.GetInstanceId())
			require.Positive(t, told.GetStepFinished().GetDuration().AsDuration())
			kept, err := rig.memory.LoadHistory(t.Context(), session.Ref{Session: "s1"}, 0, 100)
			require.NoError(t, err)
			require.Equal(t, kept[len(kept)-1].Sequence, told.GetStepFinished().GetResult().GetSequence())
			require.Nil(t, told.GetStepFinished().GetResult().GetFailure())
		})
	}
}

func closeRunner(t *testing.T, r *Runner, _ trace.Ref) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Close(ctx)
}

func cancelTrace(t *testing.T, r *Runner, ref trace.Ref) {
	t.Helper()
	require.NoError(t, r.CancelTrace(t.Context(), ref, ""))
}

// A full trace still accepts its last event, but no events before it.
func TestTurn_FullTraceStillStoresItsLastEvent(t *testing.T) {
	rig := newRig(t)
	rig.setScript("research", func(s *scriptedStep) error {
		_, err := s.storeResult(func(r *troupev1.StepResult) { r.Text = "It is committed." })
		for range trace.MaxEvents {
			call := &troupev1.Event_ToolCallStarted{ToolCallStarted: &troupev1.ToolCallStarted{Tool: "look"}}
			if err := s.sendEvent(&troupev1.Event{Payload: call}); err != nil {
				break // the turn no longer reads the stream
			}
		}
		return err
	})
	result := turnResult(runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1")))
	require.Equal(t, outcomeFailed, result.GetOutcome())
	require.Equal(t, failure.ResourceQuota, grpcfailure.FromProto(result.GetFailure()).Mode)
}
