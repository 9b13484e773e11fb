package llm_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/breaker"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

func TestGuarded_StopsCallingAFailingProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := []modelAction{failWith(llm.Unavailable, 0)}
		a := &actionModel{name: "test/a", requests: [][]modelAction{
			down,
			{failWith(llm.RateLimit, 0)},
			{sayText("hi")}, // resets the count
			down,
			{failWith(llm.Authentication, 0)},
			{failWith(llm.Connection, 0)},
			{failWith(llm.Malformed, 0)},
			down, // the trial
			{sayText("back")},
			{sayText("still")},
		}}
		m := llm.Guarded(a)
		for range 7 {
			require.NotEqual(t, llm.CircuitOpen, llm.KindOf(ask(t.Context(), t, m).err))
		}
		time.Sleep(4 * time.Second)
		err := ask(t.Context(), t, m).err
		require.Equal(t, llm.CircuitOpen, llm.KindOf(err))
		told, ok := errors.AsType[*failure.Error](err)
		require.True(t, ok)
		require.Equal(t, failure.ResourceCircuit, told.Mode)
		require.True(t, told.Mode.Retryable())
		require.Equal(t, "6s", told.Facts["retry_after"])
		require.Equal(t, "test failed the last requests to model test/a, so it is not called for now; try again in 6s", told.Message)
		require.EqualValues(t, 7, a.requestCount.Load(), "it was not asked")

		time.Sleep(6*time.Second + 1)
		require.Equal(t, llm.Unavailable, llm.KindOf(ask(t.Context(), t, m).err), "the trial")
		require.Equal(t, llm.CircuitOpen, llm.KindOf(ask(t.Context(), t, m).err))
		time.Sleep(breaker.OpenDuration + 1)
		require.Equal(t, "back", ask(t.Context(), t, m).text)
		require.Equal(t, "still", ask(t.Context(), t, m).text)
	})
}

// A chain skips a model whose breaker is open, even if the model hangs, and uses it again later.
func TestGuarded_IsSkippedInAChainWhileOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := []modelAction{delayed(time.Hour, sayText("never"))}
		a := &actionModel{name: "test/a", requests: [][]modelAction{hangs, hangs, hangs, {sayText("back")}}}
		var ok [][]modelAction
		for range 5 {
			ok = append(ok, []modelAction{sayText("here")})
		}
		b := &actionModel{name: "test/b", requests: ok}
		m := newChain(t, llm.Guarded(llm.Timed(a, time.Second)), llm.Guarded(b))
		start := time.Now()
		for range 5 {
			require.Equal(t, modelAnswer{text: "here", model: "test/b"}, ask(t.Context(), t, m))
		}
		require.Equal(t, 3*time.Second, time.Since(start), "two of them did not wait")
		time.Sleep(breaker.OpenDuration + 1)
		require.Equal(t, modelAnswer{text: "back", model: "test/a"}, ask(t.Context(), t, m))
	})
}

// The trial succeeds with the first text. A consumer that stops early neither fails nor ends it.
func TestGuarded_TrialSucceedsWithTheFirstText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := []modelAction{failWith(llm.Unavailable, 0)}
		a := &actionModel{name: "test/a", requests: [][]modelAction{
			down, down, down,
			{delayed(time.Hour, sayText("given up"))},
			{delayed(time.Second, sayText("long ")), delayed(time.Hour, sayText("answer"))},
			{sayText("beside it")},
		}}
		m := llm.Guarded(a)
		for range 3 {
			require.Error(t, ask(t.Context(), t, m).err)
		}
		time.Sleep(breaker.OpenDuration + 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, ask(ctx, t, m).err, context.DeadlineExceeded)

		long := make(chan modelAnswer)
		go func() { long <- ask(t.Context(), t, m) }()
		time.Sleep(time.Millisecond)
		err := ask(t.Context(), t, m).err
		require.Equal(t, llm.CircuitOpen, llm.KindOf(err), "one at a time")
		require.ErrorContains(t, err, "try again in 1s")
		time.Sleep(2 * time.Second)
		require.Equal(t, "beside it", ask(t.Context(), t, m).text)
		require.Equal(t, "long answer", (<-long).text)
	})
}
