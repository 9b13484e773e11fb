package llm_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

func TestTimed_AbandonsASilentModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actor{name: "test/a", requests: [][]act{{spend(3), after(time.Hour, say("never"))}}}
		start := time.Now()
		all := ask(t.Context(), t, llm.Timed(a, 10*time.Second))
		require.Equal(t, 10*time.Second, time.Since(start))
		require.Equal(t, llm.Connection, llm.KindOf(all.err))
		require.True(t, failure.Is(all.err, failure.ResourceAPI))
		require.ErrorContains(t, all.err, "test: connection: the first word did not come within 10s")
		require.Equal(t, execution.Usage{InputTokens: 3}, all.usage, "what it told is paid for")
		require.EqualValues(t, 1, a.left.Load())
	})
}

func TestTimed_DoesNotCutAnAnswerThatHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actor{name: "test/a", requests: [][]act{{after(9*time.Second, say("slow ")), after(time.Hour, say("but whole"))}}}
		require.Equal(t, said{text: "slow but whole"}, ask(t.Context(), t, llm.Timed(a, 10*time.Second)))
	})
}

func TestTimed_CountsTheRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := after(6*time.Second, fail(llm.Unavailable, 0))
		a := &actor{name: "test/a", requests: [][]act{{slow}, {slow}}}
		b := &actor{name: "test/b", requests: [][]act{{say("here")}}}
		start := time.Now()
		all := ask(t.Context(), t, chain(t, llm.Timed(llm.Retried(a, llm.Retry{}), 10*time.Second), b))
		require.Equal(t, said{text: "here", by: "test/b"}, all)
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}

func TestTimed_FailsAsTheModelDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actor{name: "test/a", requests: [][]act{{fail(llm.Authentication, 0)}, {}}}
		m := llm.Timed(a, 10*time.Second)
		require.Equal(t, llm.Authentication, llm.KindOf(ask(t.Context(), t, m).err))
		require.Equal(t, said{}, ask(t.Context(), t, m), "an empty answer is one")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a = &actor{name: "test/a", requests: [][]act{{after(time.Hour, say("never"))}}}
		require.ErrorIs(t, ask(ctx, t, llm.Timed(a, 10*time.Second)).err, context.DeadlineExceeded)
		require.Same(t, a, llm.Timed(a, 0))
	})
}
