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

// bugTime is how long a bug may go unnoticed.
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
			programs := build(t, b.Changes, b.Program)
			began := time.Now()
			found, faults := injectUntilFound(t, b, programs)
			took := time.Since(began)
			i := slices.IndexFunc(found, func(v violation.Violation) bool { return v.Check == b.By })
			require.GreaterOrEqual(t, i, 0, "%q has not noticed %s within %d faults and %s: %s\nwhat was noticed: %v", b.By, b.ID, faults,
				took.Round(time.Second), b.What, found)
			t.Logf("%s", found[i])
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\n", b.ID, strings.Join(violatedChecks(found), ", "), faults, took.Round(100*time.Millisecond), b.What)
		})
	}
	_ = table.Flush()
	t.Logf("\n%s", text.String())
}

// violatedChecks returns the names of the checks that found something, each once.
func violatedChecks(found []violation.Violation) (names []string) {
	for _, v := range found {
		if !slices.Contains(names, v.Check) {
			names = append(names, v.Check)
		}
	}
	return names
}

// injectUntilFound injects the faults that should reveal the bug, until the expected check has found it.
func injectUntilFound(t *testing.T, b Bug, programs map[string]string) (found []violation.Violation, faults int) {
	t.Helper()
	cfg := mesh.Config{Programs: programs, Redis: b.Redis, Durability: b.Durability}
	if b.Program != bugbuild.Memory {
		cfg.Workers = workers
	}
	r := start(t, cfg)
	if b.By == NoReuse {
		return r.rollback(), 1
	}
	r.contention.Start(r.ctx, cmp.Or(b.Contenders, bugContenders))
	r.lazyDisk = b.LazyDisk
	if cfg.Workers > 0 {
		r.clients.Start(r.ctx, clients)
	}
	noticed := func(v violation.Violation) bool { return v.Check == b.By }
	for over := time.Now().Add(bugTime); time.Now().Before(over); {
		for _, s := range strikesFor(b) {
			r.strike(s)
			faults++
		}
		if found = r.violations(); slices.ContainsFunc(found, noticed) {
			return found, faults
		}
	}
	return found, faults
}

const bugContenders = 4

// strikesFor returns the faults that reveal a bug; they are repeated.
func strikesFor(b Bug) []Strike {
	killIn := func(kind ledger.Kind, number int) Strike {
		return Strike{Fault: simclients.KillWorker, Aim: Aim{kind, number}, Pause: minPause}
	}
	switch b.ID {
	case "B3":
		return []Strike{{Fault: simclients.KillRedis, Pause: maxPause}}
	case "B7":
		return []Strike{killIn(ledger.Model, 4), killIn(ledger.AtMostOnce, 0)}
	case "B8":
		return []Strike{killIn(ledger.Idempotent, 0)}
	case "B9":
		return []Strike{{Pause: maxPause}} // clients that disconnect are fault enough
	case "B10":
		return []Strike{killIn(ledger.Model, 4)}
	case "B15":
		return []Strike{killIn(ledger.AtMostOnce, 0)}
	default:
		return []Strike{
			{Fault: simclients.LoseToRedis, Pause: maxPause, Overlaps: true},
			{Fault: simclients.LoseToMemory, Pause: maxPause, Overlaps: true},
		}
	}
}
