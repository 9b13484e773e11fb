package model

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/decide"
)

// visit is how a state was reached.
type visit struct {
	from      int32
	who, what string
}

// graph is what an exploration found.
type graph struct {
	worlds []world
	visits []visit
	back   [][]int32 // predecessors by transitions that are no fault
	edges  int
}

// explore visits all states, in the order of their distance. It stops at the first state with a broken promise, and
// returns its number (-1 means none).
func explore(x explorer, faults budget) (g *graph, wrong int) {
	first := world{Left: faults}
	g = &graph{worlds: []world{first}, visits: []visit{{from: -1}}, back: [][]int32{nil}}
	seen := map[world]int32{first: 0}
	for n := 0; n < len(g.worlds); n++ {
		for _, s := range x.next(g.worlds[n]) {
			g.edges++
			at, ok := seen[s.to]
			if !ok {
				at = int32(len(g.worlds))
				seen[s.to] = at
				g.worlds, g.visits, g.back = append(g.worlds, s.to), append(g.visits, visit{int32(n), s.who, s.what}), append(g.back, nil)
			}
			if !s.isFault {
				g.back[at] = append(g.back[at], int32(n))
			}
			if s.to.Wrong != kept {
				return g, int(at)
			}
		}
	}
	return g, -1
}

// path returns how a state is reached, a line for each transition.
func (g *graph) path(n int) string {
	var lines []string
	for at := int32(n); at > 0; at = g.visits[at].from {
		lines = append(lines, g.visits[at].who+" "+g.visits[at].what)
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n") + "\n" + g.worlds[n].Wrong.String()
}

// stuck returns a state from which no end can be reached without a further fault (-1 means none). Under fairness, a
// run reaches the end from every other state.
func (g *graph) stuck() int {
	reaches, queue := make([]bool, len(g.worlds)), []int32{}
	for n, w := range g.worlds {
		if w.Trail.Ended { // then the turn is closed, or a rollback removed it
			reaches[n] = true
			queue = append(queue, int32(n))
		}
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, before := range g.back[at] {
			if !reaches[before] {
				reaches[before] = true
				queue = append(queue, before)
			}
		}
	}
	return slices.Index(reaches, false)
}

var allFlag = flag.Bool("model.all", false, "explore all budgets of faults, which takes a minute, and not only the first")

// faults are the budgets of the explorations.
var faults = []budget{
	{Crashes: 2, Requests: 1},
	{Crashes: 1, LostReplies: 1, Expiries: 1},
	{Crashes: 1, LostReplies: 1, Rollbacks: 1},
}

// In every reachable state: an epoch is granted once, only the latest one writes, a tool that may run once runs at
// most once, events have no gap and one end. From every reachable state, the turn and its trace can still end.
func TestModel_KeepsItsPromisesInEveryState(t *testing.T) {
	budgets := faults
	if !*allFlag {
		budgets = faults[:1]
	}
	for _, f := range budgets {
		began := time.Now()
		g, wrong := explore(explorer{code, decide.FindCase}, f)
		if wrong >= 0 {
			t.Fatal(g.path(wrong))
		}
		t.Logf("%+v: %d states, %d transitions, %s", f, len(g.worlds), g.edges, time.Since(began).Round(time.Millisecond))
		require.Greater(t, len(g.worlds), 10_000)
		if n := g.stuck(); n >= 0 {
			t.Fatalf("no end can be reached:\n%s\n%+v", g.path(n), g.worlds[n])
		}
	}
}

// Each change of the table breaks a promise, and the explorer shows how.
func TestModel_NoticesChangesOfTheTable(t *testing.T) {
	swap := func(found decide.LookupResult, with decide.Case) func(decide.RequestKind, decide.LookupResult, bool) decide.Case {
		return func(kind decide.RequestKind, state decide.LookupResult, pending bool) decide.Case {
			if kind == decide.Orphan && state == found {
				return with
			}
			return decide.FindCase(kind, state, pending)
		}
	}
	with := func(change func(*table)) explorer {
		x := explorer{code, decide.FindCase}
		change(&x.table)
		return x
	}
	for name, c := range map[string]struct {
		x    explorer
		want []broken // the promises that may be broken
	}{
		"a takeover keeps the epoch":              {with(func(c *table) { c.takeoverRaisesEpoch = false }), []broken{epochTwice}},
		"the store takes any epoch":               {with(func(c *table) { c.writesCheckEpoch = false }), []broken{lateWrite}},
		"an earlier owner writes to the trace":    {with(func(c *table) { c.appendChecksOwner = false }), []broken{twoEnds, sameNumber, hole}},
		"the tool runs before its intent":         {with(func(c *table) { c.intentFirst = false }), []broken{effectTwice}},
		"epochs know no generation":               {with(func(c *table) { c.generations = false }), []broken{epochTwice, holderLate}},
		"an orphan of a live lease has no case":   {explorer{code, swap(decide.LeaseHeld, "")}, []broken{noCase}},
		"an abandoned turn is ended as if closed": {explorer{code, swap(decide.LeaseExpired, decide.EndClosedTurn)}, []broken{openTurn}},
	} {
		t.Run(name, func(t *testing.T) {
			small := budget{Crashes: 1, Expiries: 1, Requests: 1}
			if !c.x.generations {
				small = budget{LostReplies: 1, Rollbacks: 1}
			}
			g, wrong := explore(c.x, small)
			require.GreaterOrEqual(t, wrong, 0, "the explorer notices nothing")
			require.Contains(t, c.want, g.worlds[wrong].Wrong)
			t.Logf("counterexample:\n%s", g.path(wrong))
		})
	}
}
