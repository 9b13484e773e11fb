package trace

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

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/internal/spending"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// node is one line of the tree, with its children.
type node struct {
	text       string
	style      string
	duration   time.Duration // 0 if unknown
	showsUsage bool          // the line shows tokens and cost: its own, or the sum of its children
	ownUsage   execution.Usage
	children   []*node
}

func (n *node) add(child *node) *node {
	n.children = append(n.children, child)
	return child
}

// usage returns the usage of a node and its children, and reports whether all of their costs are known. The usage
// reported by a step counts only if no call in the step reports its own.
func (n *node) usage() (sum execution.Usage, priced bool) {
	priced = true
	for _, b := range n.children {
		u, p := b.usage()
		sum, priced = sum.Add(u), priced && p
	}
	if sum == (execution.Usage{}) {
		sum, priced = n.ownUsage, n.ownUsage == (execution.Usage{}) || n.ownUsage.CostMicros > 0
	}
	return sum, priced
}

// printTree prints the general facts about a trace, followed by its tree.
func printTree(term console.Terminal, trace *troupev1.Trace, run []*troupev1.Trace, events []*troupev1.Event) {
	w := tabwriter.NewWriter(term.Out, 0, 0, 2, ' ', 0)
	console.PrintRow(w, "trace", trace.GetTraceId())
	console.PrintRow(w, "session", console.OrDash(trace.GetSessionId()))
	console.PrintRow(w, "turn", trace.GetTurn())
	console.PrintRow(w, "state", render.TraceState(trace))
	console.PrintRow(w, "target", console.OrDash(trace.GetTarget()))
	console.PrintRow(w, "asked", console.OrDash(console.EscapeBeginning(trace.GetText(), 80)))
	console.PrintRow(w, "started", console.FormatAge(trace.GetStarted())+" ago")
	console.PrintRow(w, "events", len(events))
	if parent := trace.GetParent(); parent != nil {
		console.PrintRow(w, "parent", render.Parent(parent))
	}
	if used := formatBudgetUse(events); used != "" {
		console.PrintRow(w, "budget", used)
	}
	if f := trace.GetForkedFrom(); f != nil {
		console.PrintRow(w, "from", render.Origin(f))
	}
	if c := trace.GetResult().GetCoordination(); c != nil {
		console.PrintRow(w, "iteration", fmt.Sprintf("%d, last %s, next %s", c.GetIteration(), console.OrDash(c.GetLastAgent()),
			console.OrDash(c.GetNextAgent())))
	}
	if root := trace.GetRootTraceId(); root != "" && (root != trace.GetTraceId() || len(run) > 1) {
		console.PrintRow(w, "root", root)
		for _, t := range slices.Backward(run) {
			console.PrintRow(w, "run", fmt.Sprintf("%s  %s  %s", t.GetTraceId(), console.OrDash(t.GetTarget()), render.TraceState(t)))
		}
	}
	_ = w.Flush()
	lines := [][treeColumns]string{{"TIME", "IN", "OUT", "COST"}}
	texts := []string{""}
	var walk func(n *node, first, rest string)
	walk = func(n *node, first, rest string) {
		lines = append(lines, n.columnTexts())
		texts = append(texts, term.ApplyStyle(console.Dim, first)+term.ApplyStyle(n.style, console.EscapeLine(n.text)))
		for i, b := range n.children {
			if i == len(n.children)-1 {
				walk(b, rest+"└─ ", rest+"   ")
			} else {
				walk(b, rest+"├─ ", rest+"│  ")
			}
		}
	}
	walk(buildTree(trace, events), "", "")
	fmt.Fprintln(term.Out)
	printAligned(term.Out, lines, texts)
	for i, line := range render.RecoveryHint(trace.GetResult().GetPartial(), "") {
		if i == 0 {
			fmt.Fprintln(term.Out)
		}
		fmt.Fprintln(term.Out, line)
	}
}

// formatBudgetUse formats how much of its budget the turn has used (empty if the events report no use).
func formatBudgetUse(events []*troupev1.Event) string {
	var spent spending.Tally
	for _, e := range events {
		spent.AddEvent(e)
	}
	limits := spent.Budget().GetLimits()
	if limits == nil {
		return ""
	}
	return spending.DescribeUsed(wire.UsedToProto(spent.Used()), limits)
}

// treeColumns is the number of columns to the left of the tree. They come first, so that no text in the tree can
// shift them.
const treeColumns = 4

func (n *node) columnTexts() (c [treeColumns]string) {
	if n.duration > 0 {
		c[0] = console.FormatDuration(durationpb.New(n.duration))
	}
	if !n.showsUsage {
		return c
	}
	c[0] = cmp.Or(c[0], "-")
	u, priced := n.usage()
	c[1], c[2] = strconv.FormatInt(u.InputTokens, 10), strconv.FormatInt(u.OutputTokens, 10)
	c[3] = formatDollars(u.CostMicros, priced)
	return c
}

// formatDollars formats a cost given in millionths of a dollar. A trailing + means that part of the cost is unknown.
func formatDollars(micros int64, all bool) string {
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

// printAligned prints lines of right-aligned cells, each followed by its text.
func printAligned(out io.Writer, lines [][treeColumns]string, texts []string) {
	var width [treeColumns]int
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
