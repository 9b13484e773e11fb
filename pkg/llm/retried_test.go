package llm_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/llm"
)

// Req: CO-13
func TestRetried_RetriesTwiceByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actionModel{name: "a", requests: [][]modelAction{
			{failWith(llm.Unavailable, 0)},
			{failWith(llm.Connection, 0)},
			{sayText("third "), sayText("time")},
			{failWith(llm.Unavailable, 0)},
			{failWith(llm.Unavailable, 0)},
			{failWith(llm.RateLimit, 0)},
		}}
		m := llm.Retried(a, llm.Retry{})
		require.Equal(t, "a", m.Name())
		start := time.Now()
		all := ask(t.Context(), t, m)
		require.NoError(t, all.err)
		require.Equal(t, "third time", all.text)
		require.InDelta(t, 1.25, time.Since(start).Seconds(), 0.7, "two pauses, growing and jittered")

		require.Equal(t, llm.RateLimit, llm.KindOf(ask(t.Context(), t, m).err), "the last error")
		require.EqualValues(t, 6, a.requestCount.Load())
	})
}

func TestRetried_WaitsAsLongAsTheProviderAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actionModel{name: "a", requests: [][]modelAction{
			{failWith(llm.RateLimit, 20*time.Second)},
			{sayText("now")},
			{failWith(llm.RateLimit, time.Minute)},
		}}
		m := llm.Retried(a, llm.Retry{})
		start := time.Now()
		require.Equal(t, "now", ask(t.Context(), t, m).text)
		require.Equal(t, 20*time.Second, time.Since(start))

		start = time.Now()
		require.Error(t, ask(t.Context(), t, m).err, "a minute is too long to hold a turn")
		require.Zero(t, time.Since(start))
	})
}

func TestRetried_DoesNotRepeatStreamedText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actionModel{name: "a", requests: [][]modelAction{
			{sayText("half"), failWith(llm.Connection, 0)},
			{useTokens(7), failWith(llm.Connection, 0)},
			{useTokens(7), sayText("whole")},
		}}
		m := llm.Retried(a, llm.Retry{})
		all := ask(t.Context(), t, m)
		require.Equal(t, llm.Connection, llm.KindOf(all.err))
		require.Equal(t, "half", all.text)

		all = ask(t.Context(), t, m)
		require.NoError(t, all.err, "usage alone says nothing")
		require.EqualValues(t, 14, all.usage.InputTokens, "both requests were paid for")
	})
}

func TestRetried_RetriesOnlyTransientFailures(t *testing.T) {
	for _, kind := range []llm.Kind{
		llm.Authentication, llm.Permission, llm.Credits, llm.PaidModel, llm.BadRequest, llm.ContextLength, llm.NotFound,
		llm.Malformed, llm.ContentFiltered,
	} {
		a := &actionModel{name: "a", requests: [][]modelAction{{failWith(kind, 0)}}}
		require.Equal(t, kind, llm.KindOf(ask(t.Context(), t, llm.Retried(a, llm.Retry{})).err))
	}
	a := &actionModel{name: "a", requests: [][]modelAction{{modelAction{err: context.DeadlineExceeded}}, {failWith(llm.Unavailable, 0)}}}
	require.ErrorIs(t, ask(t.Context(), t, llm.Retried(a, llm.Retry{})).err, context.DeadlineExceeded)
	require.Error(t, ask(t.Context(), t, llm.Retried(a, llm.Retry{Limit: -1})).err)
}

func TestRetried_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actionModel{name: "a", requests: [][]modelAction{{failWith(llm.RateLimit, 10*time.Second)}, {failWith(llm.RateLimit, 10*time.Second)}}}
		m := llm.Retried(a, llm.Retry{})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		require.Equal(t, llm.RateLimit, llm.KindOf(ask(ctx, t, m).err))
		require.Zero(t, time.Since(start), "the pause would outlast the deadline")

		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		require.Equal(t, llm.RateLimit, llm.KindOf(ask(ctx, t, m).err))
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestRetried_StopsWithItsConsumer(t *testing.T) {
	a := &actionModel{name: "a", requests: [][]modelAction{{sayText("one"), sayText("two")}}}
	for _, err := range llm.Retried(a, llm.Retry{}).Generate(t.Context(), llm.Request{}) {
		require.NoError(t, err)
		break
	}
	require.EqualValues(t, 1, a.abandonedCount.Load())
	require.EqualValues(t, 1, a.requestCount.Load())
}
