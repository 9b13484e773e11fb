package trace

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

var turnInfo = TurnInfo{Fingerprint: "f", Timeout: time.Minute}

func stepEvent(payload any) *troupev1.Event {
	e := &troupev1.Event{Step: 1, Agent: "a"}
	switch p := payload.(type) {
	case *troupev1.Event_StepStarted:
		e.Payload = p
	case *troupev1.Event_StepFinished:
		e.Payload = p
	}
	return e
}

// A watch on any replica sees every event once, in order, and the complete text of a step before its end.
func TestTraces_WatchFollowsATraceOfAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{}
		owner, other := New(store, zap.NewNop()), New(store, zap.NewNop())
		l, err := owner.Open(t.Context(), newClaim(turnInfo), false)
		require.NoError(t, err)
		require.NoError(t, l.Append(t.Context(), warningEvent()))
		synctest.Wait()
		var seen []string
		done := make(chan error, 1)
		go func() {
			for e, err := range other.Watch(t.Context(), ref, 0) {
				if err != nil {
					done <- err
					return
				}
				seen = append(seen, e.GetTextDelta().GetText())
			}
			done <- nil
		}()
		for _, e := range []*troupev1.Event{
			stepEvent(&troupev1.Event_StepStarted{StepStarted: &troupev1.StepStarted{}}), textDelta("Hel"), textDelta("lo"),
			stepEvent(&troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{Result: &troupev1.StepResult{Text: "Hello"}}}),
		} {
			time.Sleep(5 * time.Second)
			require.NoError(t, l.Append(t.Context(), e))
		}
		require.NoError(t, owner.Close(t.Context(), l, lastEvent()))
		require.NoError(t, <-done)
		require.Equal(t, []string{"", "", "Hello", "", ""}, seen)
	})
}

// A watcher gets the complete text of each concurrent step before its end, whichever step ends first.
func TestTraces_WatchShowsTheTextOfConcurrentSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{}
		owner, other := New(store, zap.NewNop()), New(store, zap.NewNop())
		l, err := owner.Open(t.Context(), newClaim(turnInfo), false)
		require.NoError(t, err)
		require.NoError(t, l.Append(t.Context(), warningEvent()))
		synctest.Wait()
		var texts []string
		done := make(chan error, 1)
		go func() {
			for e, err := range other.Watch(t.Context(), ref, 0) {
				if err != nil {
					done <- err
					return
				}
				if text := e.GetTextDelta().GetText(); text != "" {
					texts = append(texts, text)
				} else if e.GetStepFinished() != nil {
					texts = append(texts, "end")
				}
			}
			done <- nil
		}()
		for _, step := range []int32{1, 2, 3} {
			e := stepEvent(&troupev1.Event_StepStarted{StepStarted: &troupev1.StepStarted{}})
			e.Step = step
			require.NoError(t, l.Append(t.Context(), e))
		}
		for _, step := range []int32{2, 1, 3, 1} { // step 1 ends twice without a second start
			time.Sleep(5 * time.Second)
			e := stepEvent(&troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{Result: &troupev1.StepResult{Text: fmt.Sprint(step)}}})
			e.Step = step
			require.NoError(t, l.Append(t.Context(), e))
		}
		require.NoError(t, owner.Close(t.Context(), l, lastEvent()))
		require.NoError(t, <-done)
		require.Equal(t, []string{"2", "end", "1", "end", "3", "end", "end"}, texts)
	})
}

// A watcher sees no gap and no duplicate when its trace moves from one replica to another.
func TestTraces_WatchSurvivesTakeovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{}
		first, second := New(store, zap.NewNop()), New(store, zap.NewNop())
		l, err := first.Open(t.Context(), newClaim(turnInfo), false)
		require.NoError(t, err)
		require.NoError(t, l.Append(t.Context(), warningEvent()))
		synctest.Wait()
		seen := make(chan []uint64, 2)
		for _, traces := range []*Traces{first, second} {
			go func() {
				got, err := collectSequences(t.Context(), traces, 0)
				if err != nil {
					t.Error(err)
				}
				seen <- got
			}()
		}
		synctest.Wait()
		first.Abandon(t.Context(), l)
		time.Sleep(time.Second)
		taken, err := second.Open(t.Context(), newClaim(turnInfo), true)
		require.NoError(t, err)
		require.NoError(t, taken.Append(t.Context(), warningEvent()))
		require.NoError(t, second.Close(t.Context(), taken, lastEvent()))
		require.Equal(t, sequenceRange(1, 3), <-seen)
		require.Equal(t, sequenceRange(1, 3), <-seen)
	})
}

// A watch ends with an error when no replica ends the trace in time.
func TestTraces_WatchEndsAfterTheTimeoutOfATrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{}
		traces, l := openTrace(t, store)
		require.NoError(t, l.Append(t.Context(), warningEvent()))
		synctest.Wait()
		traces.Abandon(t.Context(), l)
		store.mu.Lock()
		store.turn = TurnInfo{Fingerprint: "f", Timeout: -2 * endingTime}
		store.mu.Unlock()
		start := time.Now()
		_, err := collectSequences(t.Context(), traces, 0)
		require.True(t, failure.Is(err, failure.TraceOrphaned), "%v", err)
		require.Less(t, time.Since(start), time.Second)
	})
}

// A replica whose heartbeats fail may have lost its traces. It withholds text until the store accepts one of its
// writes.
func TestLog_WithholdsTextWhileHeartbeatsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{}
		traces := New(store, zap.NewNop())
		_, _, err := traces.Heartbeat(t.Context(), 0)
		require.NoError(t, err)
		l, err := traces.Open(t.Context(), newClaim(turnInfo), false)
		require.NoError(t, err)
		require.NoError(t, l.Append(t.Context(), warningEvent()))
		synctest.Wait()
		shown := func() int { items, _, _ := l.visibleEvents(0); return len(items) }

		require.NoError(t, l.Append(t.Context(), textDelta("true")))
		require.Equal(t, 2, shown())
		time.Sleep(LeaseTime + time.Second)
		require.NoError(t, l.Append(t.Context(), textDelta("who knows")))
		require.Equal(t, 2, shown())
		_, _, err = traces.Heartbeat(t.Context(), 0)
		require.NoError(t, err)
		require.NoError(t, l.Append(t.Context(), textDelta("still")))
		require.Equal(t, 2, shown(), "to be heard is no proof")
		require.NoError(t, l.Append(t.Context(), warningEvent()))
		synctest.Wait()
		require.Equal(t, 5, shown())
		require.NoError(t, traces.Close(t.Context(), l, lastEvent()))
	})
}

// After an outage of the store all leases have expired. No trace is taken over before live owners have had time to
// send a heartbeat.
func TestTraces_HeartbeatTakesOverNothingAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{}
		traces, l := openTrace(t, store)
		takes := func() int {
			_, _, err := traces.Heartbeat(t.Context(), 7)
			require.NoError(t, err)
			return store.heartbeats[len(store.heartbeats)-1].MaxTakeovers
		}
		require.Zero(t, takes())
		time.Sleep(LeaseTime)
		require.Equal(t, 7, takes())
		require.Equal(t, []Ref{ref}, store.heartbeats[1].Owned)
		store.setUnavailable(true)
		_, _, err := traces.Heartbeat(t.Context(), 7)
		require.Error(t, err)
		store.setUnavailable(false)
		require.Zero(t, takes())
		time.Sleep(LeaseTime)
		require.NoError(t, traces.Close(t.Context(), l, lastEvent()))
		require.Equal(t, 7, takes())
		require.Equal(t, []Ref{ref}, store.heartbeats[len(store.heartbeats)-1].Ended)
		takes()
		require.Empty(t, store.heartbeats[len(store.heartbeats)-1].Ended)
	})
}
