package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/spending"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// node is one line of the tree of a trace.
type node struct {
	text  string
	style string
	took  time.Duration // 0: not known
	sums  bool          // the line has tokens and a cost: its own, or those of the lines below
	own   execution.Usage
	below []*node
}

func (n *node) add(child *node) *node {
	n.below = append(n.below, child)
	return child
}

// usage is what the model calls of the line and of those below it consumed, and whether the
// cost of all of them is known. What a step says of itself counts when none of its calls is
// known.
func (n *node) usage() (sum execution.Usage, priced bool) {
	priced = true
	for _, b := range n.below {
		u, p := b.usage()
		sum, priced = sum.Add(u), priced && p
	}
	if sum == (execution.Usage{}) {
		sum, priced = n.own, n.own == (execution.Usage{}) || n.own.CostMicros > 0
	}
	return sum, priced
}

// describeTree prints what is known of a trace, and then its tree.
func describeTree(term terminal, trace *troupev1.Trace, run []*troupev1.Trace, events []*troupev1.Event) {
	w := tabwriter.NewWriter(term.out, 0, 0, 2, ' ', 0)
	row(w, "trace", trace.GetTraceId())
	row(w, "session", orDash(trace.GetSessionId()))
	row(w, "turn", trace.GetTurn())
	row(w, "state", traceState(trace))
	row(w, "target", orDash(trace.GetTarget()))
	row(w, "asked", orDash(brief(trace.GetText(), 80)))
	row(w, "started", ago(trace.GetStarted())+" ago")
	row(w, "events", len(events))
	if above := trace.GetParent(); above != nil {
		row(w, "parent", parentage(above))
	}
	if used := budgetUsed(events); used != "" {
		row(w, "budget", used)
	}
	if f := trace.GetForkedFrom(); f != nil {
		row(w, "from", origin(f))
	}
	if c := trace.GetResult().GetCoordination(); c != nil {
		row(w, "iteration", fmt.Sprintf("%d, last %s, next %s", c.GetIteration(), orDash(c.GetLastAgent()), orDash(c.GetNextAgent())))
	}
	if root := trace.GetRootTraceId(); root != "" && (root != trace.GetTraceId() || len(run) > 1) {
		row(w, "root", root)
		for _, t := range slices.Backward(run) {
			row(w, "run", fmt.Sprintf("%s  %s  %s", t.GetTraceId(), orDash(t.GetTarget()), traceState(t)))
		}
	}
	_ = w.Flush()
	lines := [][columns]string{{"TIME", "IN", "OUT", "COST"}}
	texts := []string{""}
	var walk func(n *node, first, rest string)
	walk = func(n *node, first, rest string) {
		lines = append(lines, n.cells())
		texts = append(texts, term.paint(dim, first)+term.paint(n.style, oneLine(n.text)))
		for i, b := range n.below {
			if i == len(n.below)-1 {
				walk(b, rest+"└─ ", rest+"   ")
			} else {
				walk(b, rest+"├─ ", rest+"│  ")
			}
		}
	}
	walk(newTree(trace, events), "", "")
	fmt.Fprintln(term.out)
	aligned(term.out, lines, texts)
	for i, line := range goingOn(trace.GetResult().GetPartial(), "") {
		if i == 0 {
			fmt.Fprintln(term.out)
		}
		fmt.Fprintln(term.out, line)
	}
}

// budgetUsed is what the turn took of its budget, as far as its events tell; empty when it took
// nothing, or had no budget.
func budgetUsed(events []*troupev1.Event) string {
	var spent spending.Tally
	for _, e := range events {
		spent.Note(e)
	}
	limits := spent.Budget().GetLimits()
	if limits == nil {
		return ""
	}
	return spending.Describe(wire.UsedToProto(spent.Used()), limits)
}

// columns stand before the tree, so that no text in it can shift them.
const columns = 4

func (n *node) cells() (c [columns]string) {
	if n.took > 0 {
		c[0] = short(durationpb.New(n.took))
	}
	if !n.sums {
		return c
	}
	c[0] = cmp.Or(c[0], "-")
	u, priced := n.usage()
	c[1], c[2] = strconv.FormatInt(u.InputTokens, 10), strconv.FormatInt(u.OutputTokens, 10)
	c[3] = dollars(u.CostMicros, priced)
	return c
}

// dollars is a cost of millionths of a dollar; a + says that there is more, of which it is
// not known how much.
func dollars(micros int64, all bool) string {
	text := "-"
	switch {
	case micros <= 0:
		return text
	case micros < 1000:
		text = fmt.Sprintf("$%.6f", float64(micros)/1e6)
	default:
		text = fmt.Sprintf("$%.4f", float64(micros)/1e6)
	}
	if !all {
		text += "+"
	}
	return text
}

// aligned prints cells to the right of their column, and a text behind them.
func aligned(out io.Writer, lines [][columns]string, texts []string) {
	var width [columns]int
	for _, line := range lines {
		for i, cell := range line {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for i, line := range lines {
		var b strings.Builder
		for j, cell := range line {
			fmt.Fprintf(&b, "%*s  ", width[j], cell)
		}
		fmt.Fprintln(out, strings.TrimRight(b.String()+texts[i], " "))
	}
}
