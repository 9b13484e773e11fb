package llmtest

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/llmreplay"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// streamTests tests how the adapter reads broken and unusual streams.
var streamTests = []suiteTest{
	{"CutBeforeTheFirstDelta", testCutBeforeText},
	{"CutAfterTheFirstDelta", testCutAfterText},
	{"CutInsideACall", testCutCall},
	{"Empty", testEmptyStream},
	{"InSingleBytes", testSingleBytes},
	{"WithCommentsAndCarriageReturns", testComments},
	{"WithBareCarriageReturns", testBareCarriageReturns},
	{"WithACharacterInTwoEvents", testSplitCharacter},
	{"WithInvalidJSON", testInvalidJSON},
	{"InterruptedByTheProvider", testErrorEvent},
	{"GivenUpByTheConsumer", testConsumerStops},
	{"GivenUpByTheContext", testContextEnds},
}

var twoTexts = Reply{Texts: []string{"first", "second"}}

func testCutBeforeText(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{}, func(rig *testbed, w *llmreplay.Writer, _ *http.Request) {
		w.SendEvents(rig.Wire.Stream(twoTexts).Begin...)
		w.CloseConnection()
	}))
	rig.requireFailure(all.Err, llm.Connection)
	require.Empty(rig, all.Texts)
}

// testCutAfterText checks streams without an end. A proxy may cut a stream off without a connection error.
func testCutAfterText(rig *testbed) {
	for _, broken := range []bool{true, false} {
		all := rig.askHello(rig.open(llm.Timeouts{}, func(rig *testbed, w *llmreplay.Writer, _ *http.Request) {
			s := rig.Wire.Stream(twoTexts)
			w.SendEvents(slices.Concat(s.Begin, s.Body)...)
			if broken {
				w.CloseConnection()
			}
		}))
		rig.requireFailure(all.Err, llm.Connection)
		require.Equal(rig, "firstsecond", all.Text())
		require.Empty(rig, all.Finish)
	}
}

// testCutCall checks that the adapter never yields an incomplete call.
func testCutCall(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{}, func(rig *testbed, w *llmreplay.Writer, _ *http.Request) {
		s := rig.Wire.Stream(Reply{Calls: []Call{
			{ID: "a", Name: "pay", ArgumentParts: []string{`{"amount":1`, `00}`}}, {ID: "b", Name: "pay", ArgumentParts: []string{`{}`}},
		}})
		w.SendEvents(slices.Concat(s.Begin, s.Body)...)
		w.CloseConnection()
	}))
	rig.requireFailure(all.Err, llm.Connection)
	require.Empty(rig, all.Calls)
}

func testEmptyStream(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{}, func(_ *testbed, w *llmreplay.Writer, _ *http.Request) { w.SendEvents() }))
	rig.requireFailure(all.Err, llm.Connection)
}

// testSingleBytes sends every byte separately, so that characters and line ends are split.
func testSingleBytes(rig *testbed) {
	r := Reply{Texts: []string{"ä", "🎭 grün"}, Calls: []Call{{ID: "a", Name: "look", ArgumentParts: []string{`{"at":"ö`, `🎭"}`}}}}
	all := rig.askHello(rig.open(llm.Timeouts{}, func(rig *testbed, w *llmreplay.Writer, _ *http.Request) {
		w.SendEvents(slices.Collect(slices.Chunk(bytes.Join(allEvents(rig.Wire.Stream(r)), nil), 1))...)
	}))
	require.NoError(rig, all.Err)
	require.Equal(rig, r.Texts, all.Texts)
	require.Len(rig, all.Calls, 1)
	require.JSONEq(rig, `{"at":"ö🎭"}`, all.Calls[0].Arguments)
}

func testComments(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{}, func(rig *testbed, w *llmreplay.Writer, _ *http.Request) {
		for _, e := range allEvents(rig.Wire.Stream(twoTexts)) {
			w.SendEvents([]byte(": keep-alive\r\n\r\n"), bytes.ReplaceAll(e, []byte("\n"), []byte("\r\n")))
		}
	}))
	require.NoError(rig, all.Err)
	require.Equal(rig, twoTexts.Texts, all.Texts)
}

// testBareCarriageReturns checks the third line end that the format of server-sent events allows
// (https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream). Readers that expect a line
// feed yield nothing, as reported in https://github.com/a2aproject/a2a-js/issues/714. The server continues only after
// the test has received the text, so an adapter that waits for a line feed fails.
func testBareCarriageReturns(rig *testbed) {
	heard := make(chan struct{}, 1)
	m := rig.open(llm.Timeouts{}, func(rig *testbed, w *llmreplay.Writer, _ *http.Request) {
		send := func(events [][]byte) {
			for _, e := range events {
				e = bytes.ReplaceAll(e, []byte("\r\n"), []byte("\n"))
				w.SendEvents([]byte(": keep-alive\r\r"), bytes.ReplaceAll(e, []byte("\n"), []byte("\r")))
			}
		}
		s := rig.Wire.Stream(twoTexts)
		send(slices.Concat(s.Begin, s.Body))
		select {
		case <-heard:
		case <-rig.Context().Done():
		}
		send(s.End)
	})
	all := rig.ask(rig.Context(), m, hello, func(d llm.Delta) bool {
		if d.Text == "second" {
			heard <- struct{}{}
		}
		return true
	})
	require.NoError(rig, all.Err)
	require.Equal(rig, twoTexts.Texts, all.Texts)
}

// testSplitCharacter checks a server that splits its texts by UTF-16 units. A character outside of the basic plane
// is then split into two JSON escapes, one in each of two events, as reported in
// https://github.com/elie222/rakazo/issues/416 and https://github.com/openclaw/openclaw/pull/115536.
func testSplitCharacter(rig *testbed) {
	r := Reply{
		Thoughts: []string{"FIRST", "SECOND?"}, Texts: []string{"A FIRST", "SECOND B", `BACKSLASH`, "SECOND"},
		Calls: []Call{{ID: "a", Name: "say", ArgumentParts: []string{`{"mask":"FIRST`, `SECOND"}`}}},
	}
	halves := strings.NewReplacer("FIRSTSECOND", "🎭", "FIRST", `\ud83c`, "SECOND", `\uDFAD`, "BACKSLASH", `\\ud83c`)
	for _, size := range []int{1, 1 << 20} {
		all := rig.askHello(rig.open(llm.Timeouts{}, func(rig *testbed, w *llmreplay.Writer, _ *http.Request) {
			stream := []byte(halves.Replace(string(bytes.Join(allEvents(rig.Wire.Stream(r)), nil))))
			w.SendEvents(slices.Collect(slices.Chunk(stream, size))...)
		}))
		require.NoError(rig, all.Err)
		require.Equal(rig, "🎭?", all.Thought)
		require.Equal(rig, "A 🎭 B\\ud83c\ufffd", all.Text())
		require.Len(rig, all.Calls, 1)
		require.JSONEq(rig, `{"mask":"🎭"}`, all.Calls[0].Arguments)
	}
}

func testInvalidJSON(rig *testbed) {
	for _, after := range []bool{false, true} {
		all := rig.askHello(rig.open(llm.Timeouts{}, func(rig *testbed, w *llmreplay.Writer, _ *http.Request) {
			s := rig.Wire.Stream(twoTexts)
			w.SendEvents(s.Begin...)
			if after {
				w.SendEvents(s.Body...)
			}
			for _, e := range s.Body { // the same event with incomplete JSON
				w.SendEvents(bytes.ReplaceAll(e, []byte(`"}`), []byte(`"`)))
			}
			w.SendEvents(s.End...)
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
		all := rig.askHello(rig.open(llm.Timeouts{}, func(rig *testbed, w *llmreplay.Writer, _ *http.Request) {
			s := rig.Wire.Stream(twoTexts)
			w.SendEvents(slices.Concat(s.Begin, s.Body, [][]byte{event})...)
		}))
		rig.requireFailure(all.Err, kind)
		require.ErrorContains(rig, all.Err, "too much at once")
		require.Equal(rig, "firstsecond", all.Text())
	}
}

// hangAfterText sends a text, and then nothing until the client disconnects.
func hangAfterText(rig *testbed, w *llmreplay.Writer, r *http.Request) {
	s := rig.Wire.Stream(twoTexts)
	w.SendEvents(append(slices.Clone(s.Begin), s.Body...)...)
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
	all = rig.ask(ctx, rig.open(llm.Timeouts{}, func(rig *testbed, _ *llmreplay.Writer, r *http.Request) {
		cancel() // while the adapter waits for the header
		rig.hangUntilDisconnect(r)
	}), hello, nil)
	require.ErrorIs(rig, all.Err, context.Canceled)
	rig.awaitDisconnect()
}
