//go:build chaos

package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/chaos/bugbuild"
	"github.com/troupe-dev/troupe/test/chaos/ledger"
	"github.com/troupe-dev/troupe/test/chaos/mesh"
	"github.com/troupe-dev/troupe/test/chaos/simclients"
	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// bugTime is the time within which the suite must find a bug.
const bugTime = time.Minute

// TestPlantedBugs runs the suite against meshes with one planted bug each, and expects the suite to find it. A
// suite that misses planted bugs proves nothing about the real mesh.
func TestPlantedBugs(t *testing.T) {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "bug\tnoticed by\tfaults\tafter\twhat it is")
	for _, b := range Bugs {
		if *bugsFlag != "all" && !strings.Contains(","+*bugsFlag+",", ","+b.ID+",") {
			continue
		}
		t.Run(b.ID, func(t *testing.T) {
			programs := buildPrograms(t, b.Changes, b.Program)
			began := time.Now()
			found, faults := injectUntilFound(t, b, programs)
			took := time.Since(began)
			i := slices.IndexFunc(found, func(v violation.Violation) bool { return v.Check == b.FoundBy })
			require.GreaterOrEqual(t, i, 0, "%q has not noticed %s within %d faults and %s: %s\nwhat was noticed: %v", b.FoundBy, b.ID, faults,
				took.Round(time.Second), b.What, found)
			t.Logf("%s", found[i])
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\n", b.ID, strings.Join(violatedChecks(found), ", "), faults, took.Round(100*time.Millisecond), b.What)
		})
	}
	_ = table.Flush()
	t.Logf("\n%s", text.String())
}

// violatedChecks returns the names of the checks that found a violation, without duplicates.
func violatedChecks(found []violation.Violation) (names []string) {
	for _, v := range found {
		if !slices.Contains(names, v.Check) {
			names = append(names, v.Check)
		}
	}
	return names
}

// injectUntilFound injects faults that should reveal the bug until the expected check has found it or bugTime is
// over. It returns all violations and the number of faults.
func injectUntilFound(t *testing.T, b Bug, programs map[string]string) (found []violation.Violation, faults int) {
	t.Helper()
	cfg := mesh.Config{Programs: programs, RedisFlags: b.Redis, Durability: b.Durability}
	if b.Program != bugbuild.Memory {
		cfg.Workers = workers
	}
	r := startRun(t, cfg)
	if b.FoundBy == CheckEpochReuse {
		return r.rollback(), 1
	}
	r.contention.Start(r.ctx, cmp.Or(b.Contenders, bugContenders))
	r.stallDisk = b.StallDisk
	if cfg.Workers > 0 {
		r.clients.Start(r.ctx, clients)
	}
	noticed := func(v violation.Violation) bool { return v.Check == b.FoundBy }
	for over := time.Now().Add(bugTime); time.Now().Before(over); {
		for _, s := range faultsFor(b) {
			r.injectFault(s)
			faults++
		}
		if found = r.violations(); slices.ContainsFunc(found, noticed) {
			return found, faults
		}
	}
	return found, faults
}

const bugContenders = 4

// faultsFor returns the faults that reveal a bug. The caller repeats them.
func faultsFor(b Bug) []PlannedFault {
	killIn := func(kind ledger.Kind, number int) PlannedFault {
		return PlannedFault{Fault: simclients.KillWorker, Call: CallSelector{kind, number}, Pause: minPause}
	}
	switch b.ID {
	case "B3":
		return []PlannedFault{{Fault: simclients.KillRedis, Pause: maxPause}}
	case "B7":
		return []PlannedFault{killIn(ledger.Model, 4), killIn(ledger.AtMostOnce, 0)}
	case "B8":
		return []PlannedFault{killIn(ledger.Idempotent, 0)}
	case "B9":
		return []PlannedFault{{Pause: maxPause}} // disconnecting clients are sufficient
	case "B10":
		return []PlannedFault{killIn(ledger.Model, 4)}
	case "B15":
		return []PlannedFault{killIn(ledger.AtMostOnce, 0)}
	default:
		return []PlannedFault{
			{Fault: simclients.LoseRedisReply, Pause: maxPause, Overlaps: true},
			{Fault: simclients.LoseMemoryReply, Pause: maxPause, Overlaps: true},
		}
	}
}
