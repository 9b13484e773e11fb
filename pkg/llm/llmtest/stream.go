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
var streams = []trial{
	{"CutBeforeTheFirstDelta", cutBefore},
	{"CutAfterTheFirstDelta", cutAfter},
	{"CutInsideACall", cutCall},
	{"WithoutItsEnd", withoutEnd},
	{"Empty", nothingInIt},
	{"InSingleBytes", singleBytes},
	{"WithCommentsAndCarriageReturns", withComments},
	{"WithInvalidJSON", noJSON},
	{"InterruptedByTheProvider", interrupted},
	{"GivenUpByTheConsumer", consumerStops},
	{"GivenUpByTheContext", contextEnds},
}

var twice = Reply{Say: []string{"first", "second"}}

func cutBefore(rig *testbed) {
	all := rig.askHello(rig.open(llm.Bounds{}, func(rig *testbed, w *writer, _ *http.Request) {
		w.events(rig.Wire.Stream(twice).Begin...)
		w.cut()
	}))
	rig.requireFailure(all.Err, llm.Connection)
	require.Empty(rig, all.Texts)
}

func cutAfter(rig *testbed) {
	all := rig.askHello(rig.open(llm.Bounds{}, func(rig *testbed, w *writer, _ *http.Request) {
		s := rig.Wire.Stream(twice)
		w.events(slices.Concat(s.Begin, s.Body)...)
		w.cut()
	}))
	rig.requireFailure(all.Err, llm.Connection)
	require.Equal(rig, "firstsecond", all.Text())
	require.Empty(rig, all.Finish)
}

// testCutCall checks that the adapter never yields an incomplete call.
func cutCall(rig *testbed) {
	all := rig.askHello(rig.open(llm.Bounds{}, func(rig *testbed, w *writer, _ *http.Request) {
		s := rig.Wire.Stream(Reply{Calls: []Call{{ID: "a", Name: "pay", Parts: []string{`{"amount":1`, `00}`}}, {ID: "b", Name: "pay", Parts: []string{`{}`}}}})
		w.events(slices.Concat(s.Begin, s.Body)...)
		w.cut()
	}))
	rig.requireFailure(all.Err, llm.Connection)
	require.Empty(rig, all.Calls)
}

// testMissingEnd checks a stream that a proxy has cut off: it ends without a connection error, but is incomplete.
func withoutEnd(rig *testbed) {
	all := rig.askHello(rig.open(llm.Bounds{}, func(rig *testbed, w *writer, _ *http.Request) {
		s := rig.Wire.Stream(twice)
		w.events(slices.Concat(s.Begin, s.Body)...)
	}))
	rig.requireFailure(all.Err, llm.Connection)
	require.Equal(rig, "firstsecond", all.Text())
	require.Empty(rig, all.Finish)
}

func nothingInIt(rig *testbed) {
	all := rig.askHello(rig.open(llm.Bounds{}, func(_ *testbed, w *writer, _ *http.Request) { w.events() }))
	rig.requireFailure(all.Err, llm.Connection)
}

// testSingleBytes sends every byte separately, so that characters and line ends are split.
func singleBytes(rig *testbed) {
	r := Reply{Say: []string{"ä", "🎭 grün"}, Calls: []Call{{ID: "a", Name: "look", Parts: []string{`{"at":"ö`, `🎭"}`}}}}
	all := rig.askHello(rig.open(llm.Bounds{}, func(rig *testbed, w *writer, _ *http.Request) {
		for _, b := range bytes.Join(rig.Wire.Stream(r).whole(), nil) {
			w.events([]byte{b})
		}
	}))
	require.NoError(rig, all.Err)
	require.Equal(rig, r.Say, all.Texts)
	require.Len(rig, all.Calls, 1)
	require.JSONEq(rig, `{"at":"ö🎭"}`, all.Calls[0].Arguments)
}

func withComments(rig *testbed) {
	all := rig.askHello(rig.open(llm.Bounds{}, func(rig *testbed, w *writer, _ *http.Request) {
		for _, e := range rig.Wire.Stream(twice).whole() {
			w.events([]byte(": keep-alive\r\n\r\n"), bytes.ReplaceAll(e, []byte("\n"), []byte("\r\n")))
		}
	}))
	require.NoError(rig, all.Err)
	require.Equal(rig, twice.Say, all.Texts)
}

func noJSON(rig *testbed) {
	for _, after := range []bool{false, true} {
		all := rig.askHello(rig.open(llm.Bounds{}, func(rig *testbed, w *writer, _ *http.Request) {
			s := rig.Wire.Stream(twice)
			w.events(s.Begin...)
			if after {
				w.events(s.Body...)
			}
			for _, e := range s.Body { // the same event with incomplete JSON
				w.events(bytes.ReplaceAll(e, []byte(`"}`), []byte(`"`)))
			}
			w.events(s.End...)
		}))
		rig.requireFailure(all.Err, llm.Malformed)
		require.Equal(rig, after, len(all.Texts) > 0)
		require.Empty(rig, all.Finish)
	}
}

func interrupted(rig *testbed) {
	for _, kind := range []llm.Kind{llm.Unavailable, llm.RateLimit} {
		event := rig.Wire.Interruption(kind, "too much at once for "+key)
		if event == nil {
			continue
		}
		all := rig.askHello(rig.open(llm.Bounds{}, func(rig *testbed, w *writer, _ *http.Request) {
			s := rig.Wire.Stream(twice)
			w.events(slices.Concat(s.Begin, s.Body, [][]byte{event})...)
		}))
		rig.requireFailure(all.Err, kind)
		require.ErrorContains(rig, all.Err, "too much at once")
		require.Equal(rig, "firstsecond", all.Text())
	}
}

// hangAfterText sends a text, and then nothing until the client disconnects.
func pending(rig *testbed, w *writer, r *http.Request) {
	s := rig.Wire.Stream(twice)
	w.events(append(slices.Clone(s.Begin), s.Body...)...)
	rig.hang(r)
}

func consumerStops(rig *testbed) {
	all := rig.ask(rig.Context(), rig.open(llm.Bounds{}, pending), hello, func(d llm.Delta) bool { return d.Text == "" })
	require.NoError(rig, all.Err)
	require.Equal(rig, "first", all.Text())
	rig.awaitDisconnect()
}

func contextEnds(rig *testbed) {
	ctx, cancel := context.WithCancel(rig.Context())
	all := rig.ask(ctx, rig.open(llm.Bounds{}, pending), hello, func(d llm.Delta) bool {
		if d.Text == "second" {
			cancel()
		}
		return true
	})
	require.ErrorIs(rig, all.Err, context.Canceled)
	rig.awaitDisconnect()

	all = rig.ask(ctx, rig.open(llm.Bounds{}, pending), hello, nil) // ctx has already ended
	require.ErrorIs(rig, all.Err, context.Canceled)

	ctx, cancel = context.WithCancel(rig.Context())
	all = rig.ask(ctx, rig.open(llm.Bounds{}, func(rig *testbed, _ *writer, r *http.Request) {
		cancel() // while the adapter waits for the header
		rig.hang(r)
	}), hello, nil)
	require.ErrorIs(rig, all.Err, context.Canceled)
	rig.awaitDisconnect()
}
