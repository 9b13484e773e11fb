package llm_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

func newChain(t *testing.T, models ...llm.Model) llm.Model {
	t.Helper()
	m, err := llm.Failover("chain/main", models...)
	require.NoError(t, err)
	return m
}

func TestFailover_AsksTheNextModelAndNamesTheOneThatAnswered(t *testing.T) {
	a := &actionModel{name: "test/a", requests: [][]modelAction{{useTokens(5), failWith(llm.Authentication, 0)}, {sayText("me")}}}
	b := &actionModel{name: "test/b", requests: [][]modelAction{{failWith(llm.RateLimit, 0)}}}
	c := &actionModel{name: "test/c", requests: [][]modelAction{{useTokens(7), sayText("it's "), sayText("me")}}}
	m := newChain(t, a, b, c)
	require.Equal(t, "chain/main", m.Name())

	all := ask(t.Context(), t, m)
	require.NoError(t, all.err)
	require.Equal(t, modelAnswer{text: "it's me", model: "test/c", usage: execution.Usage{InputTokens: 12}}, all)

	require.Equal(t, modelAnswer{text: "me", model: "test/a"}, ask(t.Context(), t, m), "each request begins at the first")
}

func TestFailover_StopsAtErrorsThatNoOtherModelAvoids(t *testing.T) {
	never := &actionModel{name: "test/never"}
	for _, first := range [][]modelAction{
		{sayText("half"), failWith(llm.Connection, 0)},
		{failWith(llm.ContextLength, 0)},
		{failWith(llm.BadRequest, 0)},
		{failWith(llm.ContentFiltered, 0)},
		{modelAction{err: errors.New("not of a provider")}},
	} {
		all := ask(t.Context(), t, newChain(t, &actionModel{name: "test/a", requests: [][]modelAction{first}}, never))
		require.Equal(t, first[len(first)-1].err, all.err, "as it was")
	}
	require.Zero(t, never.requestCount.Load())
}

func TestFailover_ReturnsTheLastErrorWithTheOthersAsCause(t *testing.T) {
	a := &actionModel{name: "test/a", requests: [][]modelAction{{failWith(llm.Authentication, 0)}}}
	b := &actionModel{name: "test/b", requests: [][]modelAction{{failWith(llm.Unavailable, 0)}}}
	err := ask(t.Context(), t, newChain(t, a, b)).err
	require.Equal(t, llm.Unavailable, llm.KindOf(err))
	require.True(t, failure.Is(err, failure.ResourceAPI))
	require.ErrorContains(t, err, "test/a: ")
	require.ErrorContains(t, err, "authentication")
	require.Equal(t, "no", failure.PlainMessage(err))
}

func TestFailover_NestsWithRetriedModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actionModel{name: "test/a", requests: [][]modelAction{
			{failWith(llm.Unavailable, 0)},
			{failWith(llm.Unavailable, 0)},
			{failWith(llm.Unavailable, 0)},
		}}
		b := &actionModel{name: "test/b", requests: [][]modelAction{{failWith(llm.Unavailable, 0)}, {sayText("hi")}}}
		inner, err := llm.Failover("chain/inner", llm.Retried(b, llm.Retry{}))
		require.NoError(t, err)
		require.Equal(t, modelAnswer{text: "hi", model: "test/b"}, ask(t.Context(), t, newChain(t, llm.Retried(a, llm.Retry{}), inner)))
		require.EqualValues(t, 3, a.requestCount.Load())
	})
}

func TestFailover_RejectsInvalidChains(t *testing.T) {
	_, err := llm.Failover("chain/main")
	require.True(t, failure.Is(err, failure.UserInvalidInput))
	_, err = llm.Failover("test/a", &actionModel{name: "test/a"})
	require.ErrorContains(t, err, "name the chain otherwise")
}
