package llmtest

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/llm"
)

// shortTimeout is so short that a test can wait for it.
const short = 60 * time.Millisecond

// boundTests tests how long the adapter waits.
var bounds = []trial{
	{"LimitsTheFirstByte", firstByteBound},
	{"LimitsTheTimeBetweenPieces", idleBound},
	{"LimitsTheWholeAnswer", readBound},
	{"KeepsTheDeadlineOfTheCaller", callersBound},
	{"DoesNotCountTimeOfTheConsumer", slowConsumer},
}

func firstByteBound(rig *testbed) {
	all := rig.askHello(rig.open(llm.Bounds{Connect: short, FirstByte: short}, func(rig *testbed, _ *writer, r *http.Request) { rig.hang(r) }))
	rig.requireFailure(all.Err, llm.Connection)
	require.ErrorContains(rig, all.Err, "first byte")
	rig.awaitDisconnect()
}

func idleBound(rig *testbed) {
	all := rig.askHello(rig.open(llm.Bounds{Idle: short}, pending))
	rig.requireFailure(all.Err, llm.Connection)
	require.ErrorContains(rig, all.Err, "next piece")
	require.Equal(rig, "firstsecond", all.Text())
	rig.awaitDisconnect()
}

func readBound(rig *testbed) {
	all := rig.askHello(rig.open(llm.Bounds{Read: 3 * short}, func(rig *testbed, w *writer, r *http.Request) {
		s := rig.Wire.Stream(twice)
		w.events(slices.Concat(s.Begin, s.Body)...)
		ticker := time.NewTicker(short / 10)
		defer ticker.Stop()
		for r.Context().Err() == nil && rig.Context().Err() == nil {
			w.events([]byte(": keep-alive\n\n"))
			<-ticker.C
		}
		rig.left <- struct{}{}
	}))
	rig.requireFailure(all.Err, llm.Connection)
	require.ErrorContains(rig, all.Err, "whole answer")
	rig.awaitDisconnect()
}

func callersBound(rig *testbed) {
	ctx, cancel := context.WithTimeout(rig.Context(), short)
	defer cancel()
	all := rig.ask(ctx, rig.open(llm.Bounds{}, pending), hello, nil)
	require.ErrorIs(rig, all.Err, context.DeadlineExceeded)
	rig.awaitDisconnect()
}

// testSlowConsumer checks that the adapter does not mistake a slow consumer for an unresponsive provider.
func slowConsumer(rig *testbed) {
	m := rig.open(llm.Bounds{Idle: short}, reply(Reply{Say: []string{"a", "b", "c"}}))
	all := rig.ask(rig.Context(), m, hello, func(llm.Delta) bool {
		timer := time.NewTimer(2 * short)
		defer timer.Stop()
		<-timer.C
		return true
	})
	require.NoError(rig, all.Err)
	require.Equal(rig, "abc", all.Text())
}
