package llmtest

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/llmreplay"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// shortTimeout is so short that a test can wait for it.
const shortTimeout = 60 * time.Millisecond

// boundTests tests how long the adapter waits.
var boundTests = []suiteTest{
	{"LimitsTheFirstByte", testFirstByteTimeout},
	{"LimitsTheTimeBetweenPieces", testIdleTimeout},
	{"LimitsTheWholeAnswer", testReadTimeout},
	{"KeepsTheDeadlineOfTheCaller", testCallerDeadline},
	{"DoesNotCountTimeOfTheConsumer", testSlowConsumer},
}

func testFirstByteTimeout(rig *testbed) {
	hangs := func(rig *testbed, _ *llmreplay.Writer, r *http.Request) { rig.hangUntilDisconnect(r) }
	all := rig.askHello(rig.open(llm.Timeouts{Connect: shortTimeout, FirstByte: shortTimeout}, hangs))
	rig.requireFailure(all.Err, llm.Connection)
	require.ErrorContains(rig, all.Err, "first byte")
	rig.awaitDisconnect()
}

func testIdleTimeout(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{Idle: shortTimeout}, hangAfterText))
	rig.requireFailure(all.Err, llm.Connection)
	require.ErrorContains(rig, all.Err, "next piece")
	require.Equal(rig, "firstsecond", all.Text())
	rig.awaitDisconnect()
}

func testReadTimeout(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{Read: 3 * shortTimeout}, func(rig *testbed, w *llmreplay.Writer, r *http.Request) {
		s := rig.Wire.Stream(twoTexts)
		w.SendEvents(slices.Concat(s.Begin, s.Body)...)
		ticker := time.NewTicker(shortTimeout / 10)
		defer ticker.Stop()
		for r.Context().Err() == nil && rig.Context().Err() == nil {
			w.SendEvents([]byte(": keep-alive\n\n"))
			<-ticker.C
		}
		rig.disconnects <- struct{}{}
	}))
	rig.requireFailure(all.Err, llm.Connection)
	require.ErrorContains(rig, all.Err, "whole answer")
	rig.awaitDisconnect()
}

func testCallerDeadline(rig *testbed) {
	ctx, cancel := context.WithTimeout(rig.Context(), shortTimeout)
	defer cancel()
	all := rig.ask(ctx, rig.open(llm.Timeouts{}, hangAfterText), hello, nil)
	require.ErrorIs(rig, all.Err, context.DeadlineExceeded)
	rig.awaitDisconnect()
}

// testSlowConsumer checks that the adapter does not mistake a slow consumer for an unresponsive provider.
func testSlowConsumer(rig *testbed) {
	m := rig.open(llm.Timeouts{Idle: shortTimeout}, respond(Reply{Texts: []string{"a", "b", "c"}}))
	all := rig.ask(rig.Context(), m, hello, func(llm.Delta) bool {
		timer := time.NewTimer(2 * shortTimeout)
		defer timer.Stop()
		<-timer.C
		return true
	})
	require.NoError(rig, all.Err)
	require.Equal(rig, "abc", all.Text())
}
