//go:build chaos

package chaos

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/troupe-dev/troupe/test/chaos/contention"
	"github.com/troupe-dev/troupe/test/chaos/simclients"
	"github.com/troupe-dev/troupe/test/chaos/verify"
)

// recoveryGoals holds the required recovery times at the 99th percentile (guarantees, section 3.4), for the faults that have one.
var recoveryGoals = map[simclients.Fault]time.Duration{
	simclients.KillWorker: 3 * time.Second, simclients.StopWorker: 10 * time.Second, simclients.KillMemory: 2 * time.Second,
}

// summaryTable returns a summary of a run for a person.
func (r *run) summaryTable(took time.Duration) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	samples := r.clients.Recovery.Samples()
	line("fault\tfired\tturns hit\trecovered p50\tp99\tgoal")
	for _, fault := range []simclients.Fault{
		simclients.KillWorker, simclients.StopWorker, simclients.KillMemory, simclients.KillRedis,
		simclients.LoseRedisReply, simclients.LoseMemoryReply,
	} {
		goal := "-"
		if g, ok := recoveryGoals[fault]; ok {
			goal = g.String()
		}
		line("%s\t%d\t%d\t%s\t%s\t%s", fault, r.injected[fault], len(samples[fault]),
			simclients.Quantile(samples[fault], 0.5).Round(time.Millisecond), simclients.Quantile(samples[fault], 0.99).Round(time.Millisecond), goal)
	}
	_ = w.Flush()
	counts, seen, replies := r.clients.Counts(), verify.CountFaults(r.clients.Streams(), r.ledger.Calls()), r.contention.ReplyCounts()
	fmt.Fprintf(&text, `
in %s, seed %d: %d turns acknowledged, %d failed (three workers lost), %d event streams, %d calls in the ledger
%d requests sent %d times at once, %d clients left and came back
%d takeovers, %d part resets, %d results replayed from the journal, %d tools in doubt, %d workers fenced
beside them on the memory service: %d turns, %d takeovers, %d fenced writes
`, took.Round(time.Second), seed(), counts.Turns, counts.Failed, counts.Streams, len(r.ledger.Calls()),
		counts.Bursts, simclients.BurstSize, counts.Disconnects,
		seen.Takeovers, seen.Retractions, seen.ReplayedResults, seen.InDoubt, r.CountLogLines("step failed", "fenced"),
		r.contention.Turns(), replies[contention.TakenOver], replies[contention.Fenced])
	return text.String()
}
