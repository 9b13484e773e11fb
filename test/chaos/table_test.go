//go:build chaos

package chaos

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/troupe-dev/troupe/test/chaos/contest"
	"github.com/troupe-dev/troupe/test/chaos/crowd"
	"github.com/troupe-dev/troupe/test/chaos/verify"
)

// goals are the goals of the recovery time at p99 (guarantees 3.4), for the faults that have one.
var goals = map[crowd.Fault]time.Duration{
	crowd.KillWorker: 3 * time.Second, crowd.StopWorker: 10 * time.Second, crowd.KillMemory: 2 * time.Second,
}

// table returns a summary of a run for a person.
func (r *run) table(took time.Duration) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	samples := r.crowd.Recovery.Samples()
	line("fault\tfired\tturns hit\trecovered p50\tp99\tgoal")
	for _, fault := range []crowd.Fault{crowd.KillWorker, crowd.StopWorker, crowd.KillMemory, crowd.KillRedis, crowd.LoseToRedis, crowd.LoseToMemory} {
		goal := "-"
		if g, ok := goals[fault]; ok {
			goal = g.String()
		}
		line("%s\t%d\t%d\t%s\t%s\t%s", fault, r.injected[fault], len(samples[fault]),
			crowd.Quantile(samples[fault], 0.5).Round(time.Millisecond), crowd.Quantile(samples[fault], 0.99).Round(time.Millisecond), goal)
	}
	_ = w.Flush()
	tally, seen, replies := r.crowd.Tally(), verify.CountFaults(r.crowd.Streams(), r.ledger.Calls()), r.contest.ReplyCounts()
	fmt.Fprintf(&text, `
in %s, seed %d: %d turns acknowledged, %d failed (three workers lost), %d event streams, %d calls in the ledger
%d requests sent %d times at once, %d clients left and came back
%d takeovers, %d part resets, %d results replayed from the journal, %d tools in doubt, %d workers fenced
beside them on the memory service: %d turns, %d takeovers, %d fenced writes
`, took.Round(time.Second), seed(), tally.Turns, tally.Failed, tally.Streams, len(r.ledger.Calls()),
		tally.Bursts, crowd.BurstSize, tally.Leaves,
		seen.Takeovers, seen.Resets, seen.Replays, seen.Unknown, r.CountLogLines("step failed", "fenced"),
		r.contest.Turns(), replies[contest.TakenOver], replies[contest.Fenced])
	return text.String()
}
