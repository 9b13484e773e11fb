package trace

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// A worker learns whether it still owns a step. The orchestrator that drives the trace knows this immediately, and
// other orchestrators with the next stored events. Storing the epoch costs no extra write (guarantee S6).
func TestTraces_StatusNamesTheOwnerOfAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{}
		here, elsewhere := New(store, zap.NewNop()), New(store, zap.NewNop())
		stands := func(at *Traces, step int) Status {
			standing, err := at.Status(t.Context(), ref, step)
			require.NoError(t, err)
			return standing
		}
		require.Zero(t, stands(here, 1), "nothing of it is there yet")
		l, err := here.Open(t.Context(), newClaim(TurnInfo{TurnEpoch: 7}), false)
		require.NoError(t, err)
		require.Equal(t, Status{TurnEpoch: 7}, stands(here, 1))
		require.Zero(t, stands(elsewhere, 1))

		require.NoError(t, l.Append(t.Context(), &troupev1.Event{Step: 1, Payload: &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{}}}))
		synctest.Wait()
		require.Equal(t, Status{TurnEpoch: 7, StepEnded: true}, stands(here, 1))
		require.Equal(t, Status{TurnEpoch: 7}, stands(here, 2))
		require.Equal(t, Status{TurnEpoch: 7}, stands(elsewhere, 2))

		l.SetTurnEpoch(8)
		require.Equal(t, Status{TurnEpoch: 8}, stands(here, 1), "whichever replica repeats it")
		require.Equal(t, Status{TurnEpoch: 7}, stands(elsewhere, 1))
		writes := store.writes
		require.NoError(t, l.Append(t.Context(), warningEvent()))
		synctest.Wait()
		require.Equal(t, writes+1, store.writes)
		require.Equal(t, Status{TurnEpoch: 8}, stands(elsewhere, 1))

		taken, err := elsewhere.Open(t.Context(), newClaim(TurnInfo{TurnEpoch: 9}), true)
		require.NoError(t, err)
		require.Equal(t, Status{TurnEpoch: 9}, stands(elsewhere, 1))
		require.NoError(t, l.Append(t.Context(), warningEvent()))
		synctest.Wait()
		require.Equal(t, Status{TurnEpoch: 9}, stands(here, 1), "its log is refused, so that it asks the store")
		require.NoError(t, elsewhere.Close(t.Context(), taken, lastEvent()))
		require.Equal(t, Status{Ended: true, TurnEpoch: 9}, stands(here, 1))
	})
}
