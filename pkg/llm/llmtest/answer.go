package llmtest

import (
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// answerTests tests how the adapter reads complete answers.
var answers = []trial{
	{"YieldsTextInOrder", textInOrder},
	{"YieldsTextAtOnce", textAtOnce},
	{"ReadsLongText", longText},
	{"AcceptsAnEmptyAnswer", nothingSaid},
	{"YieldsCompleteCalls", callsComplete},
	{"AcceptsCallsWithoutText", callsAlone},
	{"AddsAnObjectToCallsWithoutArguments", callsEmpty},
	{"ReportsUsageOnce", usageTold},
	{"ReportsTheFinishReason", endsForReason},
	{"ReportsAContentFilter", filterRefuses},
}

func textInOrder(rig *testbed) {
	say := []string{"Hel", "lo ", "wörld", " 🎭", "\n\n", "\"quoted\" \\ </b>", " ", "end"}
	all := rig.askHello(rig.open(llm.Bounds{}, reply(Reply{Say: say})))
	require.NoError(rig, all.Err)
	require.Equal(rig, say, all.Texts)
	require.Empty(rig, all.Calls)
	require.Equal(rig, llm.FinishStop, all.Finish)
}

// testTextArrivesAtOnce checks that the adapter yields text as it arrives. The server continues only after the
// test has received the text.
func textAtOnce(rig *testbed) {
	heard := make(chan struct{}, 1)
	m := rig.open(llm.Bounds{}, func(rig *testbed, w *writer, _ *http.Request) {
		s := rig.Wire.Stream(Reply{Say: []string{"a", "b", "c"}})
		w.events(s.Begin...)
		for _, e := range s.Body {
			w.events(e)
		}
		select {
		case <-heard:
		case <-rig.Context().Done():
			rig.Error("no delta was yielded before the stream ended")
		}
		w.events(s.End...)
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

func longText(rig *testbed) {
	say := []string{strings.Repeat("ä long delta ", 20_000), "end"}
	all := rig.askHello(rig.open(llm.Bounds{}, reply(Reply{Say: say})))
	require.NoError(rig, all.Err)
	require.Equal(rig, strings.Join(say, ""), all.Text())
}

func nothingSaid(rig *testbed) {
	all := rig.askHello(rig.open(llm.Bounds{}, reply(Reply{})))
	require.NoError(rig, all.Err)
	require.Empty(rig, all.Texts)
	require.Equal(rig, llm.FinishStop, all.Finish)
}

func callsComplete(rig *testbed) {
	all := rig.askHello(rig.open(llm.Bounds{}, reply(Reply{
		Say: []string{"I look ", "twice."},
		Calls: []Call{
			{ID: "call_1", Name: "look", Parts: []string{`{"at"`, `:"gr`, `ün 🎭`, ` \"q\"","n":`, `1}`}},
			{ID: "call_2", Name: "look", Parts: []string{`{"at":{"deep":[1,2,{"x":null}]}}`}},
			{ID: "call_3", Name: "count_all", Parts: []string{`{`, `}`}},
		},
	})))
	require.NoError(rig, all.Err)
	require.Equal(rig, "I look twice.", all.Text())
	require.Equal(rig, llm.FinishCalls, all.Finish)
	rig.sameCalls([]conversation.ToolCall{
		{ID: "call_1", Name: "look", Arguments: `{"at":"grün 🎭 \"q\"","n":1}`},
		{ID: "call_2", Name: "look", Arguments: `{"at":{"deep":[1,2,{"x":null}]}}`},
		{ID: "call_3", Name: "count_all", Arguments: `{}`},
	}, all.Calls)
}

func callsAlone(rig *testbed) {
	all := rig.askHello(rig.open(llm.Bounds{}, reply(Reply{Calls: []Call{{ID: "a", Name: "look", Parts: []string{`{"n":12345678901234567890}`}}}})))
	require.NoError(rig, all.Err)
	require.Empty(rig, all.Texts)
	require.Len(rig, all.Calls, 1)
	require.Contains(rig, all.Calls[0].Arguments, "12345678901234567", "as the model wrote it")
}

func callsEmpty(rig *testbed) {
	all := rig.askHello(rig.open(llm.Bounds{}, reply(Reply{Calls: []Call{
		{ID: "a", Name: "now"}, {ID: "b", Name: "now", Parts: []string{""}}, {ID: "c", Name: "now", Parts: []string{"{}"}},
	}})))
	require.NoError(rig, all.Err)
	require.Len(rig, all.Calls, 3)
	for _, c := range all.Calls {
		require.JSONEq(rig, "{}", c.Arguments)
	}
}

func usageTold(rig *testbed) {
	told := execution.Usage{InputTokens: 1200, OutputTokens: 34, CachedTokens: 1000, CacheWriteTokens: 100}
	if rig.NoCache {
		told.CachedTokens = 0
	}
	if rig.NoWrites {
		told.CacheWriteTokens = 0
	}
	all := rig.askHello(rig.open(llm.Bounds{}, reply(Reply{Say: []string{"a", "b"}, Usage: told})))
	require.NoError(rig, all.Err)
	require.Equal(rig, told, all.Usage)
}

func endsForReason(rig *testbed) {
	m := rig.open(llm.Bounds{},
		reply(Reply{Say: []string{"a"}, Cut: true}),
		reply(Reply{Calls: []Call{{ID: "a", Name: "look", Parts: []string{`{}`}}}}),
		reply(Reply{Say: []string{"a"}}),
	)
	for _, want := range []llm.Finish{llm.FinishLength, llm.FinishCalls, llm.FinishStop} {
		all := rig.askHello(m)
		require.NoError(rig, all.Err)
		require.Equal(rig, want, all.Finish)
	}
}

func filterRefuses(rig *testbed) {
	spent := execution.Usage{InputTokens: 7, OutputTokens: 3}
	m := rig.open(llm.Bounds{},
		reply(Reply{Filtered: true}),
		reply(Reply{Say: []string{"I would"}, Filtered: true}),
		reply(Reply{Calls: []Call{{ID: "a", Name: "pay", Parts: []string{`{}`}}}, Usage: spent, Filtered: true}),
	)
	all := rig.askHello(m)
	rig.requireFailure(all.Err, llm.Refused)
	require.Empty(rig, all.Texts)
	all = rig.askHello(m)
	rig.requireFailure(all.Err, llm.Refused)
	require.Equal(rig, "I would", all.Text())
	require.Empty(rig, all.Finish)
	all = rig.askHello(m)
	rig.requireFailure(all.Err, llm.Refused)
	require.Empty(rig, all.Calls, "calls of a stopped answer must not run")
	require.Equal(rig, spent, all.Usage, "the tokens are paid for")
}
