package llmtest

import (
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/llmreplay"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// answerTests tests how the adapter reads complete answers.
var answerTests = []suiteTest{
	{"YieldsTextInOrder", testTextOrder},
	{"YieldsTextAtOnce", testTextArrivesAtOnce},
	{"ReadsLongText", testLongText},
	{"AcceptsAnEmptyAnswer", testEmptyAnswer},
	{"YieldsCompleteCalls", testCompleteCalls},
	{"AcceptsCallsWithoutText", testCallsWithoutText},
	{"AddsAnObjectToCallsWithoutArguments", testCallsWithoutArguments},
	{"ReportsUsageOnce", testUsageReportedOnce},
	{"ReportsTheFinishReason", testFinishReasons},
	{"ReportsAContentFilter", testContentFilter},
	{"ReportsAnUnknownFinishReason", testUnknownFinishReason},
	{"YieldsThoughts", testThoughts},
	{"ReadsAnAnswerThatIsNotStreamed", testUnstreamed},
}

func testTextOrder(rig *testbed) {
	say := []string{"Hel", "lo ", "wörld", " 🎭", "\n\n", "\"quoted\" \\ </b>", " ", "end"}
	all := rig.askHello(rig.open(llm.Timeouts{}, respond(Reply{Texts: say})))
	require.NoError(rig, all.Err)
	require.Equal(rig, say, all.Texts)
	require.Empty(rig, all.Calls)
	require.Equal(rig, llm.FinishStop, all.Finish)
}

// testTextArrivesAtOnce checks that the adapter yields text as it arrives. The server continues only after the
// test has received the text.
func testTextArrivesAtOnce(rig *testbed) {
	heard := make(chan struct{}, 1)
	m := rig.open(llm.Timeouts{}, func(rig *testbed, w *llmreplay.Writer, _ *http.Request) {
		s := rig.Wire.Stream(Reply{Texts: []string{"a", "b", "c"}})
		w.SendEvents(s.Begin...)
		for _, e := range s.Body {
			w.SendEvents(e)
		}
		select {
		case <-heard:
		case <-rig.Context().Done():
			rig.Error("no delta was yielded before the stream ended")
		}
		w.SendEvents(s.End...)
	})
	all := rig.ask(rig.Context(), m, hello, func(d llm.Delta) bool {
		if d.Text == "c" {
			heard <- struct{}{}
		}
		return true
	})
	require.NoError(rig, all.Err)
	require.Equal(rig, "abc", all.Text())
}

func testLongText(rig *testbed) {
	say := []string{strings.Repeat("ä long delta ", 20_000), "end"}
	all := rig.askHello(rig.open(llm.Timeouts{}, respond(Reply{Texts: say})))
	require.NoError(rig, all.Err)
	require.Equal(rig, strings.Join(say, ""), all.Text())
}

func testEmptyAnswer(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{}, respond(Reply{})))
	require.NoError(rig, all.Err)
	require.Empty(rig, all.Texts)
	require.Equal(rig, llm.FinishStop, all.Finish)
}

func testCompleteCalls(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{}, respond(Reply{
		Texts: []string{"I look ", "twice."},
		Calls: []Call{
			{ID: "call_1", Name: "look", ArgumentParts: []string{`{"at"`, `:"gr`, `ün 🎭`, ` \"q\"","n":`, `1}`}},
			{ID: "call_2", Name: "look", ArgumentParts: []string{`{"at":{"deep":[1,2,{"x":null}]}}`}},
			{ID: "call_3", Name: "count_all", ArgumentParts: []string{`{`, `}`}},
		},
	})))
	require.NoError(rig, all.Err)
	require.Equal(rig, "I look twice.", all.Text())
	require.Equal(rig, llm.FinishCalls, all.Finish)
	rig.requireSameCalls([]conversation.ToolCall{
		{ID: "call_1", Name: "look", Arguments: `{"at":"grün 🎭 \"q\"","n":1}`},
		{ID: "call_2", Name: "look", Arguments: `{"at":{"deep":[1,2,{"x":null}]}}`},
		{ID: "call_3", Name: "count_all", Arguments: `{}`},
	}, all.Calls)
}

func testCallsWithoutText(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{}, respond(Reply{Calls: []Call{{ID: "a", Name: "look", ArgumentParts: []string{`{"n":12345678901234567890}`}}}})))
	require.NoError(rig, all.Err)
	require.Empty(rig, all.Texts)
	require.Len(rig, all.Calls, 1)
	require.Contains(rig, all.Calls[0].Arguments, "12345678901234567", "as the model wrote it")
}

func testCallsWithoutArguments(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{}, respond(Reply{Calls: []Call{
		{ID: "a", Name: "now"}, {ID: "b", Name: "now", ArgumentParts: []string{""}}, {ID: "c", Name: "now", ArgumentParts: []string{"{}"}},
	}})))
	require.NoError(rig, all.Err)
	require.Len(rig, all.Calls, 3)
	for _, c := range all.Calls {
		require.JSONEq(rig, "{}", c.Arguments)
	}
}

func testUsageReportedOnce(rig *testbed) {
	told := execution.Usage{InputTokens: 1200, OutputTokens: 34, CachedTokens: 1000, CacheWriteTokens: 100}
	if rig.NoCache {
		told.CachedTokens = 0
	}
	if rig.NoCacheWrites {
		told.CacheWriteTokens = 0
	}
	all := rig.askHello(rig.open(llm.Timeouts{}, respond(Reply{Texts: []string{"a", "b"}, Usage: told})))
	require.NoError(rig, all.Err)
	require.Equal(rig, told, all.Usage)
}

func testFinishReasons(rig *testbed) {
	for want, r := range map[llm.Finish]Reply{
		llm.FinishLength: {Texts: []string{"a"}, Truncated: true}, llm.FinishStop: {Texts: []string{"a"}},
		llm.FinishCalls: {Calls: []Call{{ID: "a", Name: "look", ArgumentParts: []string{`{}`}}}},
	} {
		all := rig.askHello(rig.open(llm.Timeouts{}, respond(r)))
		require.NoError(rig, all.Err)
		require.Equal(rig, want, all.Finish)
	}
}

func testContentFilter(rig *testbed) {
	spent := execution.Usage{InputTokens: 7, OutputTokens: 3}
	m := rig.open(llm.Timeouts{},
		respond(Reply{Filtered: true}),
		respond(Reply{Texts: []string{"I would"}, Filtered: true}),
		respond(Reply{Calls: []Call{{ID: "a", Name: "pay", ArgumentParts: []string{`{}`}}}, Usage: spent, Filtered: true}),
	)
	all := rig.askHello(m)
	rig.requireFailure(all.Err, llm.ContentFiltered)
	require.Empty(rig, all.Texts)
	all = rig.askHello(m)
	rig.requireFailure(all.Err, llm.ContentFiltered)
	require.Equal(rig, "I would", all.Text())
	require.Empty(rig, all.Finish)
	all = rig.askHello(m)
	rig.requireFailure(all.Err, llm.ContentFiltered)
	require.Empty(rig, all.Calls, "calls of a stopped answer must not run")
	require.Equal(rig, spent, all.Usage, "the tokens are paid for")
}

// testUnknownFinishReason checks that an answer with a finish reason that the adapter does not know is no plain
// success, and is not lost either.
func testUnknownFinishReason(rig *testbed) {
	call := Call{ID: "a", Name: "look", ArgumentParts: []string{`{}`}}
	for _, r := range []Reply{{Texts: []string{"I would"}, Reason: "BRAND_NEW"}, {Calls: []Call{call}, Reason: "BRAND_NEW"}} {
		all := rig.askHello(rig.open(llm.Timeouts{}, respond(r)))
		require.NoError(rig, all.Err)
		require.Equal(rig, r.Texts, all.Texts)
		require.Len(rig, all.Calls, len(r.Calls))
		require.Equal(rig, llm.FinishOther, all.Finish)
	}
}

func testThoughts(rig *testbed) {
	all := rig.askHello(rig.open(llm.Timeouts{}, respond(Reply{Thoughts: []string{"I ", "see 🎭."}, Texts: []string{"It is ", "foggy."}})))
	require.NoError(rig, all.Err)
	require.Equal(rig, "I see 🎭.", all.Thought)
	require.Equal(rig, "It is foggy.", all.Text(), "a thought is no part of the answer")
	require.Equal(rig, llm.FinishStop, all.Finish)
}

// respondWithJSON responds with a JSON document.
func respondWithJSON(document func(Wire) []byte) responder {
	return func(rig *testbed, w *llmreplay.Writer, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = w.Write(document(rig.Wire))
	}
}

// testUnstreamed checks the answers of a server that ignores the request for a stream.
func testUnstreamed(rig *testbed) {
	whole := func(r Reply) responder {
		return respondWithJSON(func(w Wire) []byte { return w.Unstreamed(r) })
	}
	call := Call{ID: "call_1", Name: "look", ArgumentParts: []string{`{"at"`, `:"grün"}`}}
	spent := execution.Usage{InputTokens: 7, OutputTokens: 4}
	m := rig.open(llm.Timeouts{},
		whole(Reply{Thoughts: []string{"I see."}, Texts: []string{"It is foggy."}, Usage: spent}),
		whole(Reply{Texts: []string{"I look."}, Calls: []Call{call}}),
		whole(Reply{Texts: []string{"It is"}, Truncated: true}),
		whole(Reply{Texts: []string{"I would"}, Filtered: true}),
		respondWithJSON(func(w Wire) []byte { return w.ErrorBody(503, llm.Unavailable, "too much at once") }),
		respondWithJSON(func(w Wire) []byte { return w.Unstreamed(twoTexts)[:20] }),
	)
	all := rig.askHello(m)
	require.NoError(rig, all.Err)
	require.Equal(rig, "I see.", all.Thought)
	require.Equal(rig, "It is foggy.", all.Text())
	require.Equal(rig, spent, all.Usage)
	require.Equal(rig, llm.FinishStop, all.Finish)

	all = rig.askHello(m)
	require.NoError(rig, all.Err)
	require.Equal(rig, "I look.", all.Text())
	rig.requireSameCalls([]conversation.ToolCall{{ID: "call_1", Name: "look", Arguments: `{"at":"grün"}`}}, all.Calls)
	require.Equal(rig, llm.FinishCalls, all.Finish)

	require.Equal(rig, llm.FinishLength, rig.askHello(m).Finish)
	rig.requireFailure(rig.askHello(m).Err, llm.ContentFiltered)
	rig.requireFailure(rig.askHello(m).Err, llm.Unavailable)
	rig.requireFailure(rig.askHello(m).Err, llm.Malformed)
}
