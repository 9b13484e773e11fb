package budget_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/failure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// toolCallLimit returns Limits that limit only tool calls.
func toolCallLimit(n int64, policy budget.Policy) budget.Limits {
	l := budget.Unbounded()
	l.ToolCalls, l.Policy = n, policy
	return l
}

// The default limits end a turn that runs away, and leave a working agent its calls. The tests of the loop show that a
// rejection comes before the call.
// Req: OC-29
func TestDefault_LimitsEachKind(t *testing.T) {
	limits := budget.Default()
	require.Equal(t, "100", budget.Cost.FormatAmount(limits.Cost), "in US dollars")
	require.EqualValues(t, 500, limits.ToolCalls)
	require.EqualValues(t, 5_000_000, limits.Tokens)
	require.Equal(t, budget.Block, limits.Policy)

	for _, c := range []struct {
		kind  budget.Kind
		most  budget.Amounts
		above budget.Amounts
	}{
		{budget.Cost, budget.Amounts{Cost: 100 * budget.Dollar}, budget.Amounts{Cost: 1}},
		{budget.ToolCalls, budget.Amounts{ToolCalls: 500}, budget.Amounts{ToolCalls: 1}},
		{budget.Tokens, budget.Amounts{Tokens: 5_000_000}, budget.Amounts{Tokens: 1}},
	} {
		l := budget.New(limits, 0)
		r, err := l.Reserve(c.most)
		require.NoError(t, err)
		r.Settle(c.most)
		_, err = l.Reserve(c.above)
		refused, ok := errors.AsType[*failure.Error](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, failure.PolicyBudget, refused.Mode)
		require.Equal(t, string(c.kind), refused.Facts["budget"])
		require.Equal(t, c.kind.FormatAmount(limits.Get(c.kind)), refused.Facts["limit"])
		require.Equal(t, refused.Facts["limit"], refused.Facts["used"])
		require.Equal(t, c.kind.FormatAmount(c.above.Get(c.kind)), refused.Facts["asked"])

		warned := limits
		warned.Policy = budget.Warn
		l = budget.New(warned, 0)
		r, err = l.Reserve(c.most.Add(c.above))
		require.NoError(t, err, "a budget that warns refuses nothing")
		require.Equal(t, []budget.Kind{c.kind}, r.Exceeded)
	}
}

func TestLedger_NeverGoesAboveItsLimits(t *testing.T) {
	const limit = 500
	l := budget.New(toolCallLimit(limit, budget.Block), 0)
	var held, done atomic.Int64
	var above atomic.Bool
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for {
				asked := 1 + rand.Int64N(9)
				r, err := l.Reserve(budget.Amounts{ToolCalls: asked})
				if err != nil {
					return
				}
				if held.Add(asked) > limit {
					above.Store(true)
				}
				used := rand.Int64N(asked + 1)
				held.Add(-asked)
				done.Add(used)
				r.Settle(budget.Amounts{ToolCalls: used})
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, l.Used().ToolCalls, int64(limit))
	require.Equal(t, done.Load(), l.Used().ToolCalls)
	require.False(t, above.Load(), "also what is reserved is within the limit")
	require.Greater(t, l.Used().ToolCalls, int64(0))
}

func TestLedger_GrantsNothingAfterARejection(t *testing.T) {
	l := budget.New(toolCallLimit(2, budget.Block), 0)
	_, err := l.Reserve(budget.Amounts{ToolCalls: 3})
	require.ErrorIs(t, l.Rejection(), err)
	_, err = l.Reserve(budget.Amounts{ModelCalls: 1})
	require.ErrorIs(t, err, l.Rejection())
	require.Zero(t, l.Used())
}

func TestLedger_WarnsOnceOfEachKind(t *testing.T) {
	l := budget.New(toolCallLimit(1, budget.Warn), 0)
	for i, want := range [][]budget.Kind{nil, {budget.ToolCalls}, nil} {
		r, err := l.Reserve(budget.Amounts{ToolCalls: 1})
		require.NoError(t, err)
		require.Equal(t, want, r.Exceeded, "call %d", i+1)
		r.Settle(budget.Amounts{ToolCalls: 1})
	}
	require.EqualValues(t, 3, l.Used().ToolCalls)
	require.NoError(t, l.Rejection())
}

func TestLedger_LeftIsNeitherUsedNorReserved(t *testing.T) {
	l := budget.New(toolCallLimit(10, budget.Block), 0)
	r, err := l.Reserve(budget.Amounts{ToolCalls: 2})
	require.NoError(t, err)
	require.EqualValues(t, 8, l.Left().ToolCalls)
	r.Settle(budget.Amounts{ToolCalls: 1})
	require.EqualValues(t, 9, l.Left().ToolCalls)
	require.EqualValues(t, budget.Unlimited, l.Left().Tokens)
}

func TestLedger_NilBoundsNothing(t *testing.T) {
	var l *budget.Ledger
	require.Equal(t, budget.Unbounded().Amounts, l.Left())
	r, err := l.Reserve(budget.Amounts{Tokens: budget.Unlimited})
	require.NoError(t, err)
	r.Settle(budget.Amounts{Tokens: 1})
	limits, r, err := l.Child(1)
	require.NoError(t, err)
	require.Equal(t, budget.Unbounded(), limits)
	r.Settle(budget.Amounts{})
	require.Zero(t, l.Used())
	require.NoError(t, l.Rejection())
}

func TestLedger_ChildrenShareTheRest(t *testing.T) {
	limits := budget.Default()
	limits.Tokens = 100_000
	l := budget.New(limits, 1)
	own, err := l.Reserve(budget.Amounts{Tokens: 10_000})
	require.NoError(t, err)
	own.Settle(budget.Amounts{Tokens: 10_000})

	var together int64
	var held []budget.Reservation
	for range 3 {
		got, r, err := l.Child(3)
		require.NoError(t, err)
		require.EqualValues(t, 30_000, got.Tokens)
		require.EqualValues(t, budget.Unlimited, got.FanOut, "the child has its own limit")
		require.Equal(t, limits.Depth, got.Depth)
		together += got.Tokens
		held = append(held, r)
	}
	require.EqualValues(t, 90_000, together)
	_, err = l.Reserve(budget.Amounts{Tokens: 1})
	require.Error(t, err, "all of it is with the children")

	held[0].Settle(budget.Amounts{Tokens: 5_000, FanOut: 1})
	require.EqualValues(t, 15_000, l.Used().Tokens)
}

func TestLedger_RejectsChildrenBeyondDepthAndFanOut(t *testing.T) {
	for name, l := range map[string]*budget.Ledger{
		"too deep":         budget.New(budget.Default(), budget.DefaultDepth),
		"too deep, warned": budget.New(budget.Limits{Amounts: budget.Default().Amounts, Depth: 0, Policy: budget.Warn}, 0),
		"too many":         budget.New(budget.Limits{Amounts: budget.Amounts{Iterations: 9, ModelCalls: 9, Tokens: 9, Cost: 9}, Depth: 4}, 0),
		"too many, warned": budget.New(budget.Limits{
			Amounts: budget.Amounts{Iterations: 9, ModelCalls: 9, Tokens: 9, Cost: 9}, Depth: 4,
			Policy: budget.Warn,
		}, 0),
		"nothing left": budget.New(budget.Limits{Amounts: budget.Amounts{Iterations: 9, ModelCalls: 9, Cost: 9, FanOut: 9}, Depth: 4}, 0),
	} {
		_, _, err := l.Child(1)
		require.Equal(t, failure.PolicyBudget, failure.ModeOf(err), name)
		require.ErrorIs(t, l.Rejection(), err, name)
	}
}
