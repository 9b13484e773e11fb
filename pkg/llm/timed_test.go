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

func TestTimed_AbandonsAnUnresponsiveModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actionModel{name: "test/a", requests: [][]modelAction{{useTokens(3), delayed(time.Hour, sayText("never"))}}}
		start := time.Now()
		all := ask(t.Context(), t, llm.Timed(a, 10*time.Second))
		require.Equal(t, 10*time.Second, time.Since(start))
		require.Equal(t, llm.Connection, llm.KindOf(all.err))
		require.True(t, failure.Is(all.err, failure.ResourceAPI))
		require.ErrorContains(t, all.err, "test: connection: the first word did not come within 10s")
		require.Equal(t, execution.Usage{InputTokens: 3}, all.usage, "what it told is paid for")
		require.EqualValues(t, 1, a.abandonedCount.Load())
	})
}

func TestTimed_DoesNotCutAnAnswerThatHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actionModel{name: "test/a", requests: [][]modelAction{{delayed(9*time.Second, sayText("slow ")), delayed(time.Hour, sayText("but whole"))}}}
		require.Equal(t, modelAnswer{text: "slow but whole"}, ask(t.Context(), t, llm.Timed(a, 10*time.Second)))
	})
}

func TestTimed_IncludesRetriesInTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := delayed(6*time.Second, failWith(llm.Unavailable, 0))
		a := &actionModel{name: "test/a", requests: [][]modelAction{{slow}, {slow}}}
		b := &actionModel{name: "test/b", requests: [][]modelAction{{sayText("here")}}}
		start := time.Now()
		all := ask(t.Context(), t, newChain(t, llm.Timed(llm.Retried(a, llm.Retry{}), 10*time.Second), b))
		require.Equal(t, modelAnswer{text: "here", model: "test/b"}, all)
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}

func TestTimed_ReturnsErrorsOfTheModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actionModel{name: "test/a", requests: [][]modelAction{{failWith(llm.Authentication, 0)}, {}}}
		m := llm.Timed(a, 10*time.Second)
		require.Equal(t, llm.Authentication, llm.KindOf(ask(t.Context(), t, m).err))
		require.Equal(t, modelAnswer{}, ask(t.Context(), t, m), "an empty answer is one")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a = &actionModel{name: "test/a", requests: [][]modelAction{{delayed(time.Hour, sayText("never"))}}}
		require.ErrorIs(t, ask(ctx, t, llm.Timed(a, 10*time.Second)).err, context.DeadlineExceeded)
		require.Same(t, a, llm.Timed(a, 0))
	})
}
