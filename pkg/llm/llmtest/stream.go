package llmtest

import (
	"bytes"
	"context"
	"net/http"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/llm"
)

// streamTests tests how the adapter reads broken and unusual streams.
var streamTests = []suiteTest{
	{"CutBeforeTheFirstDelta", testCutBeforeText},
	{"CutAfterTheFirstDelta", testCutAfterText},
	{"CutInsideACall", testCutCall},
	{"WithoutItsEnd", testMissingEnd},
	{"Empty", testEmptyStream},
	{"InSingleBytes", testSingleBytes},
	{"WithCommentsAndCarriageReturns", testComments},
	{"WithInvalidJSON", testInvalidJSON},
	{"InterruptedByTheProvider", testErrorEvent},
	{"GivenUpByTheConsumer", testConsumerStops},
	{"GivenUpByTheContext", testContextEnds},
}

var twoTexts = Reply{Texts: []string{"first", "second"}}

func testCutBeforeText(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{}, func(rig *testbed, w *writer, _ *http.Request) {
		w.sendEvents(rig.Wire.Stream(twoTexts).Begin...)
		w.closeConnection()
	}))
	rig.requireFailure(all.Err, llm.Connection)
	require.Empty(rig, all.Texts)
}

func testCutAfterText(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{}, func(rig *testbed, w *writer, _ *http.Request) {
		s := rig.Wire.Stream(twoTexts)
		w.sendEvents(slices.Concat(s.Begin, s.Body)...)
		w.closeConnection()
	}))
	rig.requireFailure(all.Err, llm.Connection)
	require.Equal(rig, "firstsecond", all.Text())
	require.Empty(rig, all.Finish)
}

// testCutCall checks that the adapter never yields an incomplete call.
func testCutCall(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{}, func(rig *testbed, w *writer, _ *http.Request) {
		s := rig.Wire.Stream(Reply{Calls: []Call{{ID: "a", Name: "pay", ArgumentParts: []string{`{"amount":1`, `00}`}}, {
			ID: "b", Name: "pay",
			ArgumentParts: []string{`{}`},
		}}})
		w.sendEvents(slices.Concat(s.Begin, s.Body)...)
		w.closeConnection()
	}))
	rig.requireFailure(all.Err, llm.Connection)
	require.Empty(rig, all.Calls)
}

// testMissingEnd checks a stream that a proxy has cut off: it ends without a connection error, but is incomplete.
func testMissingEnd(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{}, func(rig *testbed, w *writer, _ *http.Request) {
		s := rig.Wire.Stream(twoTexts)
		w.sendEvents(slices.Concat(s.Begin, s.Body)...)
	}))
	rig.requireFailure(all.Err, llm.Connection)
	require.Equal(rig, "firstsecond", all.Text())
	require.Empty(rig, all.Finish)
}

func testEmptyStream(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{}, func(_ *testbed, w *writer, _ *http.Request) { w.sendEvents() }))
	rig.requireFailure(all.Err, llm.Connection)
}

// testSingleBytes sends every byte separately, so that characters and line ends are split.
func testSingleBytes(rig *testbed) {
	r := Reply{Texts: []string{"ä", "🎭 grün"}, Calls: []Call{{ID: "a", Name: "look", ArgumentParts: []string{`{"at":"ö`, `🎭"}`}}}}
	all := rig.askHello(rig.open(llm.Timeouts{}, func(rig *testbed, w *writer, _ *http.Request) {
		for _, b := range bytes.Join(rig.Wire.Stream(r).allEvents(), nil) {
			w.sendEvents([]byte{b})
		}
	}))
	require.NoError(rig, all.Err)
	require.Equal(rig, r.Texts, all.Texts)
	require.Len(rig, all.Calls, 1)
	require.JSONEq(rig, `{"at":"ö🎭"}`, all.Calls[0].Arguments)
}

func testComments(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{}, func(rig *testbed, w *writer, _ *http.Request) {
		for _, e := range rig.Wire.Stream(twoTexts).allEvents() {
			w.sendEvents([]byte(": keep-alive\r\n\r\n"), bytes.ReplaceAll(e, []byte("\n"), []byte("\r\n")))
		}
	}))
	require.NoError(rig, all.Err)
	require.Equal(rig, twoTexts.Texts, all.Texts)
}

func testInvalidJSON(rig *testbed) {
	for _, after := range []bool{false, true} {
		all := rig.askHello(rig.open(llm.Timeouts{}, func(rig *testbed, w *writer, _ *http.Request) {
			s := rig.Wire.Stream(twoTexts)
			w.sendEvents(s.Begin...)
			if after {
				w.sendEvents(s.Body...)
			}
			for _, e := range s.Body { // the same event with incomplete JSON
				w.sendEvents(bytes.ReplaceAll(e, []byte(`"}`), []byte(`"`)))
			}
			w.sendEvents(s.End...)
		}))
		rig.requireFailure(all.Err, llm.Malformed)
		require.Equal(rig, after, len(all.Texts) > 0)
		require.Empty(rig, all.Finish)
	}
}

func testErrorEvent(rig *testbed) {
	for _, kind := range []llm.Kind{llm.Unavailable, llm.RateLimit} {
		event := rig.Wire.ErrorEvent(kind, "too much at once for "+key)
		if event == nil {
			continue
		}
		all := rig.askHello(rig.open(llm.Timeouts{}, func(rig *testbed, w *writer, _ *http.Request) {
			s := rig.Wire.Stream(twoTexts)
			w.sendEvents(slices.Concat(s.Begin, s.Body, [][]byte{event})...)
		}))
		rig.requireFailure(all.Err, kind)
		require.ErrorContains(rig, all.Err, "too much at once")
		require.Equal(rig, "firstsecond", all.Text())
	}
}

// hangAfterText sends a text, and then nothing until the client disconnects.
func hangAfterText(rig *testbed, w *writer, r *http.Request) {
	s := rig.Wire.Stream(twoTexts)
	w.sendEvents(append(slices.Clone(s.Begin), s.Body...)...)
	rig.hangUntilDisconnect(r)
}

func testConsumerStops(rig *testbed) {
	all := rig.ask(rig.Context(), rig.open(llm.Timeouts{}, hangAfterText), hello, func(d llm.Delta) bool { return d.Text == "" })
	require.NoError(rig, all.Err)
	require.Equal(rig, "first", all.Text())
	rig.awaitDisconnect()
}

func testContextEnds(rig *testbed) {
	ctx, cancel := context.WithCancel(rig.Context())
	all := rig.ask(ctx, rig.open(llm.Timeouts{}, hangAfterText), hello, func(d llm.Delta) bool {
		if d.Text == "second" {
			cancel()
		}
		return true
	})
	require.ErrorIs(rig, all.Err, context.Canceled)
	rig.awaitDisconnect()

	all = rig.ask(ctx, rig.open(llm.Timeouts{}, hangAfterText), hello, nil) // ctx has already ended
	require.ErrorIs(rig, all.Err, context.Canceled)

	ctx, cancel = context.WithCancel(rig.Context())
	all = rig.ask(ctx, rig.open(llm.Timeouts{}, func(rig *testbed, _ *writer, r *http.Request) {
		cancel() // while the adapter waits for the header
		rig.hangUntilDisconnect(r)
	}), hello, nil)
	require.ErrorIs(rig, all.Err, context.Canceled)
	rig.awaitDisconnect()
}
