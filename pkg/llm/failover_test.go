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

func chain(t *testing.T, models ...llm.Model) llm.Model {
	t.Helper()
	m, err := llm.Failover("chain/main", models...)
	require.NoError(t, err)
	return m
}

func TestFailover_AsksTheNextModelAndNamesTheOneThatAnswered(t *testing.T) {
	a := &actor{name: "test/a", requests: [][]act{{spend(5), fail(llm.Authentication, 0)}, {say("me")}}}
	b := &actor{name: "test/b", requests: [][]act{{fail(llm.RateLimit, 0)}}}
	c := &actor{name: "test/c", requests: [][]act{{spend(7), say("it's "), say("me")}}}
	m := chain(t, a, b, c)
	require.Equal(t, "chain/main", m.Name())

	all := ask(t.Context(), t, m)
	require.NoError(t, all.err)
	require.Equal(t, said{text: "it's me", by: "test/c", usage: execution.Usage{InputTokens: 12}}, all)

	require.Equal(t, said{text: "me", by: "test/a"}, ask(t.Context(), t, m), "each request begins at the first")
}

func TestFailover_StopsWhereAnotherWouldDoNoBetter(t *testing.T) {
	never := &actor{name: "test/never"}
	for _, first := range [][]act{
		{say("half"), fail(llm.Connection, 0)},
		{fail(llm.ContextLength, 0)},
		{fail(llm.BadRequest, 0)},
		{fail(llm.Refused, 0)},
		{act{err: errors.New("not of a provider")}},
	} {
		all := ask(t.Context(), t, chain(t, &actor{name: "test/a", requests: [][]act{first}}, never))
		require.Equal(t, first[len(first)-1].err, all.err, "as it was")
	}
	require.Zero(t, never.asked.Load())
}

func TestFailover_FailsLikeTheLastAndKnowsAll(t *testing.T) {
	a := &actor{name: "test/a", requests: [][]act{{fail(llm.Authentication, 0)}}}
	b := &actor{name: "test/b", requests: [][]act{{fail(llm.Unavailable, 0)}}}
	err := ask(t.Context(), t, chain(t, a, b)).err
	require.Equal(t, llm.Unavailable, llm.KindOf(err))
	require.True(t, failure.Is(err, failure.ResourceAPI))
	require.ErrorContains(t, err, "test/a: ")
	require.ErrorContains(t, err, "authentication")
	require.Equal(t, "no", failure.Plain(err))
}

func TestFailover_OfRetriedModelsNests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actor{name: "test/a", requests: [][]act{{fail(llm.Unavailable, 0)}, {fail(llm.Unavailable, 0)}, {fail(llm.Unavailable, 0)}}}
		b := &actor{name: "test/b", requests: [][]act{{fail(llm.Unavailable, 0)}, {say("hi")}}}
		inner, err := llm.Failover("chain/inner", llm.Retried(b, llm.Retry{}))
		require.NoError(t, err)
		require.Equal(t, said{text: "hi", by: "test/b"}, ask(t.Context(), t, chain(t, llm.Retried(a, llm.Retry{}), inner)))
		require.EqualValues(t, 3, a.asked.Load())
	})
}

func TestFailover_RejectsInvalidChains(t *testing.T) {
	_, err := llm.Failover("chain/main")
	require.True(t, failure.Is(err, failure.UserInvalidInput))
	_, err = llm.Failover("test/a", &actor{name: "test/a"})
	require.ErrorContains(t, err, "name the chain otherwise")
}
