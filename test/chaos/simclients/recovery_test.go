package simclients

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func eventOn(instance string, payload any) *troupev1.Event {
	e := &troupev1.Event{Sequence: 1, Step: 1, InstanceId: instance}
	switch payload.(type) {
	case *troupev1.ModelCall:
		e.Payload = &troupev1.Event_ModelCall{}
	case *troupev1.TextRetracted:
		e.Payload = &troupev1.Event_TextRetracted{TextRetracted: &troupev1.TextRetracted{}}
	case *troupev1.StepFinished:
		e.Payload = &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{}}
	}
	return e
}

// A killed worker affects only the turns that it runs. They have recovered when another worker continues them.
func TestRecoveryTimes_MeasureUntilTheNextProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecoveryTimes()
		r.recordEvent("a", eventOn("w1", &troupev1.ModelCall{}))
		r.recordEvent("b", eventOn("w2", &troupev1.ModelCall{}))
		r.RecordFault(KillWorker, "w1")
		time.Sleep(time.Second)
		r.recordEvent("a", eventOn("w1", &troupev1.ModelCall{})) // it was in flight
		r.recordEvent("a", eventOn("w1", &troupev1.TextRetracted{}))
		r.RecordFault(KillMemory, "") // a turn without a worker stays with its fault
		time.Sleep(time.Second)
		r.recordEvent("a", eventOn("w3", &troupev1.ModelCall{}))
		r.recordEvent("b", eventOn("w2", &troupev1.ModelCall{})) // does not need the store
		time.Sleep(time.Second)
		r.recordEvent("b", eventOn("w2", &troupev1.StepFinished{}))
		r.RecordFault(KillRedis, "") // b is between steps; a is affected and left by its client
		r.removeTurn("a")
		require.Empty(t, cmp.Diff(map[Fault][]time.Duration{KillWorker: {2 * time.Second}, KillMemory: {2 * time.Second}}, r.Samples()))
	})
}

// The turn of a killed worker may move to the worker that is frozen next. Its delay then has two causes, so its
// time is not counted for either fault.
func TestRecoveryTimes_IgnoreAKillDuringAFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecoveryTimes()
		r.recordEvent("a", eventOn("w1", &troupev1.ModelCall{}))
		r.recordEvent("b", eventOn("w2", &troupev1.ModelCall{}))
		r.RecordFault(KillWorker, "w1")
		r.RecordFault(StopWorker, "w2")
		time.Sleep(4 * time.Second)
		r.recordEvent("a", eventOn("w2", &troupev1.ModelCall{}))
		r.recordEvent("b", eventOn("w2", &troupev1.ModelCall{}))
		require.Empty(t, cmp.Diff(map[Fault][]time.Duration{StopWorker: {4 * time.Second}}, r.Samples()))
	})
}

func TestQuantile(t *testing.T) {
	sorted := []time.Duration{1, 2, 3, 4}
	require.Equal(t, time.Duration(3), Quantile(sorted, 0.5))
	require.Equal(t, time.Duration(4), Quantile(sorted, 0.99))
	require.Zero(t, Quantile(nil, 0.5))
}
