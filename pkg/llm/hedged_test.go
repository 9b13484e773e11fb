package llm_test

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
)

const hedgeDelay = 2 * time.Second

// askHedged asks a hedged pair of models. It returns the answer and how long it took.
func askHedged(t *testing.T, first, second *actionModel) (modelAnswer, time.Duration) {
	t.Helper()
	start := time.Now()
	return ask(t.Context(), t, llm.Hedged(first, second, hedgeDelay)), time.Since(start)
}

func TestHedged_AsksOnceWhenTheFirstAnswersInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actionModel{name: "a", requests: [][]modelAction{{delayed(time.Second, sayText("slow ")), delayed(time.Minute, sayText("but mine"))}}}
		b := &actionModel{name: "b"}
		all, _ := askHedged(t, a, b)
		require.Equal(t, modelAnswer{text: "slow but mine"}, all)
		require.Zero(t, b.requestCount.Load())
	})
}

func TestHedged_CancelsTheFirstModelWhenTheSecondAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actionModel{name: "a", requests: [][]modelAction{{useTokens(3), delayed(time.Hour, sayText("never"))}}}
		b := &actionModel{name: "b", requests: [][]modelAction{{useTokens(4), delayed(time.Second, sayText("I ")), delayed(time.Second, sayText("do"))}}}
		all, took := askHedged(t, a, b)
		require.Equal(t, modelAnswer{text: "I do", model: "b", usage: execution.Usage{InputTokens: 7}}, all)
		require.Equal(t, hedgeDelay+2*time.Second, took)
		require.EqualValues(t, 1, a.abandonedCount.Load())
	})
}

func TestHedged_FirstModelWinsIfItAnswersFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actionModel{name: "a", requests: [][]modelAction{{delayed(hedgeDelay+time.Second, sayText("late ")), delayed(time.Hour, sayText("but first"))}}}
		b := &actionModel{name: "b", requests: [][]modelAction{{delayed(2*time.Second, sayText("never"))}}}
		all, _ := askHedged(t, a, b)
		require.Equal(t, modelAnswer{text: "late but first"}, all)
		require.EqualValues(t, 1, b.abandonedCount.Load())
	})
}

func TestHedged_FailsWhenBothModelsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actionModel{name: "a", requests: [][]modelAction{{failWith(llm.Unavailable, 0)}}}
		all, took := askHedged(t, a, &actionModel{name: "b"})
		require.Equal(t, llm.Unavailable, llm.KindOf(all.err))
		require.Zero(t, took, "to go on is for others")

		a = &actionModel{name: "a", requests: [][]modelAction{{delayed(3*time.Second, failWith(llm.Unavailable, 0))}}}
		b := &actionModel{name: "b", requests: [][]modelAction{{delayed(2*time.Second, sayText("here"))}}}
		all, _ = askHedged(t, a, b)
		require.Equal(t, modelAnswer{text: "here", model: "b"}, all)

		a = &actionModel{name: "a", requests: [][]modelAction{{delayed(4*time.Second, failWith(llm.Unavailable, 0))}}}
		b = &actionModel{name: "b", requests: [][]modelAction{{failWith(llm.RateLimit, 0)}}}
		all, took = askHedged(t, a, b)
		require.Equal(t, llm.Unavailable, llm.KindOf(all.err), "the last one to fail")
		require.Equal(t, 4*time.Second, took)
	})
}

func TestHedged_ReportsAFailureDuringTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actionModel{name: "a", requests: [][]modelAction{{delayed(3*time.Second, sayText("half")), failWith(llm.Connection, 0)}}}
		b := &actionModel{name: "b", requests: [][]modelAction{{delayed(time.Hour, sayText("never"))}}}
		all, _ := askHedged(t, a, b)
		require.Equal(t, "half", all.text)
		require.Equal(t, llm.Connection, llm.KindOf(all.err))
	})
}

func TestHedged_AcceptsAnEmptyAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, took := askHedged(t, &actionModel{name: "a", requests: [][]modelAction{{}}}, &actionModel{name: "b"})
		require.Equal(t, modelAnswer{}, all)
		require.Zero(t, took)
	})
}

func TestHedged_EndsWithItsContextAndItsConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actionModel{name: "a", requests: [][]modelAction{{delayed(time.Hour, sayText("never"))}, {sayText("one"), sayText("two")}}}
		b := &actionModel{name: "b", requests: [][]modelAction{{delayed(time.Hour, sayText("never"))}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		m := llm.Hedged(a, b, hedgeDelay)
		require.ErrorIs(t, ask(ctx, t, m).err, context.DeadlineExceeded)
		require.EqualValues(t, 2, a.abandonedCount.Load()+b.abandonedCount.Load(), "both were given up, and waited for")

		for _, err := range m.Generate(t.Context(), llm.Request{}) {
			require.NoError(t, err)
			break
		}
		require.EqualValues(t, 2, a.abandonedCount.Load())
	})
}

// panickingModel is a model that panics.
type panickingModel struct{ llm.Model }

func (panickingModel) Name() string { return "bomb" }

func (panickingModel) Generate(context.Context, llm.Request) iter.Seq2[llm.Delta, error] {
	return func(func(llm.Delta, error) bool) { panic("boom") }
}

func TestHedged_TurnsAPanicIntoAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.ErrorContains(t, ask(t.Context(), t, llm.Hedged(panickingModel{}, panickingModel{}, hedgeDelay)).err, "boom")
	})
}
