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

const hedge = 2 * time.Second

// askHedged asks a hedged pair of models. It returns the answer and how long it took.
func race(t *testing.T, first, second *actor) (said, time.Duration) {
	t.Helper()
	start := time.Now()
	return ask(t.Context(), t, llm.Hedged(first, second, hedge)), time.Since(start)
}

func TestHedged_AsksOnceWhenTheFirstAnswersInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actor{name: "a", requests: [][]act{{after(time.Second, say("slow ")), after(time.Minute, say("but mine"))}}}
		b := &actor{name: "b"}
		all, _ := race(t, a, b)
		require.Equal(t, said{text: "slow but mine"}, all)
		require.Zero(t, b.asked.Load())
	})
}

func TestHedged_TheSecondAnswersAndTheFirstIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actor{name: "a", requests: [][]act{{spend(3), after(time.Hour, say("never"))}}}
		b := &actor{name: "b", requests: [][]act{{spend(4), after(time.Second, say("I ")), after(time.Second, say("do"))}}}
		all, took := race(t, a, b)
		require.Equal(t, said{text: "I do", by: "b", usage: execution.Usage{InputTokens: 7}}, all)
		require.Equal(t, hedge+2*time.Second, took)
		require.EqualValues(t, 1, a.left.Load())
	})
}

func TestHedged_TheFirstMayStillWin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actor{name: "a", requests: [][]act{{after(hedge+time.Second, say("late ")), after(time.Hour, say("but first"))}}}
		b := &actor{name: "b", requests: [][]act{{after(2*time.Second, say("never"))}}}
		all, _ := race(t, a, b)
		require.Equal(t, said{text: "late but first"}, all)
		require.EqualValues(t, 1, b.left.Load())
	})
}

func TestHedged_FailsWhenBothModelsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actor{name: "a", requests: [][]act{{fail(llm.Unavailable, 0)}}}
		all, took := race(t, a, &actor{name: "b"})
		require.Equal(t, llm.Unavailable, llm.KindOf(all.err))
		require.Zero(t, took, "to go on is for others")

		a = &actor{name: "a", requests: [][]act{{after(3*time.Second, fail(llm.Unavailable, 0))}}}
		b := &actor{name: "b", requests: [][]act{{after(2*time.Second, say("here"))}}}
		all, _ = race(t, a, b)
		require.Equal(t, said{text: "here", by: "b"}, all)

		a = &actor{name: "a", requests: [][]act{{after(4*time.Second, fail(llm.Unavailable, 0))}}}
		b = &actor{name: "b", requests: [][]act{{fail(llm.RateLimit, 0)}}}
		all, took = race(t, a, b)
		require.Equal(t, llm.Unavailable, llm.KindOf(all.err), "the last one to fail")
		require.Equal(t, 4*time.Second, took)
	})
}

func TestHedged_AnAnswerMayFailUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actor{name: "a", requests: [][]act{{after(3*time.Second, say("half")), fail(llm.Connection, 0)}}}
		b := &actor{name: "b", requests: [][]act{{after(time.Hour, say("never"))}}}
		all, _ := race(t, a, b)
		require.Equal(t, "half", all.text)
		require.Equal(t, llm.Connection, llm.KindOf(all.err))
	})
}

func TestHedged_AnEmptyAnswerIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, took := race(t, &actor{name: "a", requests: [][]act{{}}}, &actor{name: "b"})
		require.Equal(t, said{}, all)
		require.Zero(t, took)
	})
}

func TestHedged_EndsWithItsContextAndItsConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actor{name: "a", requests: [][]act{{after(time.Hour, say("never"))}, {say("one"), say("two")}}}
		b := &actor{name: "b", requests: [][]act{{after(time.Hour, say("never"))}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		m := llm.Hedged(a, b, hedge)
		require.ErrorIs(t, ask(ctx, t, m).err, context.DeadlineExceeded)
		require.EqualValues(t, 2, a.left.Load()+b.left.Load(), "both were given up, and waited for")

		for _, err := range m.Generate(t.Context(), llm.Request{}) {
			require.NoError(t, err)
			break
		}
		require.EqualValues(t, 2, a.left.Load())
	})
}

// panickingModel is a model that panics.
type bomb struct{ llm.Model }

func (bomb) Name() string { return "bomb" }

func (bomb) Generate(context.Context, llm.Request) iter.Seq2[llm.Delta, error] {
	return func(func(llm.Delta, error) bool) { panic("boom") }
}

func TestHedged_APanicIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.ErrorContains(t, ask(t.Context(), t, llm.Hedged(bomb{}, bomb{}, hedge)).err, "boom")
	})
}
