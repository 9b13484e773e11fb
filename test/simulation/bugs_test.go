package simulation

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/chaos"
	"github.com/troupe-dev/troupe/test/chaos/bugbuild"
	"github.com/troupe-dev/troupe/test/overlay"
	"github.com/troupe-dev/troupe/test/simulation/schedule"
)

var bugsFlag = flag.String("simulation.bugs", "", "planted bugs to search, such as B1,B7, or all (empty means none)")

// maxBugSeeds is how many seeds may pass until a planted bug is found.
const maxBugSeeds = 10_000

// plantedBug is a bug that the simulation must find.
type plantedBug struct {
	id, what string
	changes  []overlay.Change
}

// ours returns the planted bugs. Bugs in the scripts of Redis are planted at the same place of the store in RAM; the
// others are the bugs of the chaos suite. B2, B3 and B13 need real servers.
func ours() []plantedBug {
	bugs := []plantedBug{
		{id: "B1", what: "a commit does not look at its epoch", changes: []overlay.Change{{
			File:        "pkg/memory/inmem/internal/db/db.go",
			Find:        "\tcase lease.Epoch != c.Epoch:\n",
			Replacement: "\tcase lease.Epoch != c.Epoch && op != \"memory.CommitStep\":\n",
		}}},
		{id: "B4", what: "a commit is acknowledged before it is stored", changes: []overlay.Change{{
			File: "services/memory/internal/api/turns.go",
			Find: "\tlast, err := s.store.CommitStep(ctx, c)\n",
			Replacement: `	last, err := c.Base+int64(len(c.Messages)), error(nil)
	go s.store.CommitStep(context.WithoutCancel(ctx), c)
`,
		}}},
		{id: "B5", what: "a takeover keeps the epoch", changes: []overlay.Change{{
			File:        "pkg/memory/inmem/internal/turns/begin.go",
			Find:        "\tc.Epoch = max(c.Epoch+1, s.db.LeastEpoch)\n",
			Replacement: "\tif t.Epoch == 0 {\n\t\tc.Epoch = max(c.Epoch+1, s.db.LeastEpoch)\n\t}\n",
		}}},
		{id: "B6", what: "epochs know no generation, and the data go back in time", changes: []overlay.Change{{
			File:        "pkg/memory/inmem/inmem.go",
			Find:        "return generation << generationBits",
			Replacement: "return generation * 0",
		}}},
		{id: "B11", what: "an orchestrator ignores the list after an outage of the registry", changes: []overlay.Change{{
			File:        "services/orchestrator/internal/routing/instances/cache.go",
			Find:        "\tcase u.List != nil:\n",
			Replacement: "\tcase u.List != nil && c.source == fromRegistry:\n\tcase u.List != nil:\n",
		}}},
		{id: "B12", what: "a worker treats an unreachable registry as a lost lease", changes: []overlay.Change{{
			File:        "internal/lifecycle/admission.go",
			Find:        "case s.Lease == LeaseExpired:",
			Replacement: "case s.Lease == LeaseExpired || s.Lease == LeaseUnknown:",
		}}},
		{id: "B14", what: "two orchestrators write to one trace", changes: []overlay.Change{{
			File:        "services/orchestrator/internal/trace/inmem/inmem.go",
			Find:        "\t\tcase r.epoch != ownerEpoch:\n",
			Replacement: "\t\tcase r.epoch != ownerEpoch && false:\n",
		}}},
	}
	for _, b := range chaos.Bugs {
		if slices.Contains([]string{"B7", "B8", "B9", "B10", "B15"}, b.ID) {
			bugs = append(bugs, plantedBug{id: b.ID, what: b.What, changes: b.Changes})
		}
	}
	slices.SortFunc(bugs, func(a, b plantedBug) int { return cmp.Or(cmp.Compare(len(a.id), len(b.id)), cmp.Compare(a.id, b.id)) })
	return bugs
}

// The changes of all planted bugs fit the code, so that the table stays in step with it.
func TestPlantedBugs_FitTheCode(t *testing.T) {
	for _, b := range ours() {
		_, err := overlay.ApplyAll(bugbuild.RepositoryRoot(), b.changes)
		require.NoError(t, err, b.id)
	}
}

// found reads the seed and the check from the output of a run that failed.
var found = regexp.MustCompile(`seed (\d+): ([^:\n]+):`)

// TestPlantedBugs runs the simulation of meshes with one planted bug each, and expects it to find the bug.
func TestPlantedBugs(t *testing.T) {
	if *bugsFlag == "" {
		return // they are built for minutes; make simulate BUGS=all searches them
	}
	for _, b := range ours() {
		if *bugsFlag != "all" && !slices.Contains(strings.Split(*bugsFlag, ","), b.id) {
			continue
		}
		t.Run(b.id, func(t *testing.T) {
			folder := t.TempDir()
			program := filepath.Join(folder, "simulation.test")
			require.NoError(t, bugbuild.BuildTest(folder, program, b.changes, "./test/simulation"))
			began := time.Now()
			out := runProgram(t.Context(), program, maxBugSeeds, 1)
			m := found.FindStringSubmatch(out)
			require.NotNil(t, m, "%s is not found within %d seeds: %s\n%s", b.id, maxBugSeeds, b.what, out)
			again := 0
			var seed uint64
			_, err := fmt.Sscan(m[1], &seed)
			require.NoError(t, err)
			for range 10 {
				if found.MatchString(runProgram(t.Context(), program, 1, seed)) {
					again++
				}
			}
			t.Logf("%s: %s: found by %q at seed %d after %s; it fails again in %d of 10 runs", b.id, b.what, m[2], seed,
				time.Since(began).Round(time.Second), again)
			require.GreaterOrEqual(t, again, 9)
		})
	}
}

// runProgram runs seeds in a test program and returns its output.
func runProgram(ctx context.Context, program string, seeds int, first uint64) string {
	cmd := exec.CommandContext(ctx, program, "-test.run", "TestSimulation$", "-test.timeout", "1h", fmt.Sprintf("-simulation.seeds=%d", seeds),
		fmt.Sprintf("-simulation.seed=%d", first), fmt.Sprintf("-simulation.lanes=%d", *lanesFlag), "-simulation.shrink=false")
	cmd.Dir = filepath.Join(bugbuild.RepositoryRoot(), "test", "simulation")
	out, _ := cmd.CombinedOutput() // the caller reads from it whether the program failed
	return string(out)
}

// Shrinking leaves out what a failure does not need.
func TestShrink_KeepsWhatFails(t *testing.T) {
	s := schedule.New(3)
	s.Faults = append(s.Faults, schedule.Fault{Kind: schedule.Freeze, Process: "guilty"})
	small := s.Shrink(func(c schedule.Schedule) bool {
		return slices.ContainsFunc(c.Faults, func(f schedule.Fault) bool { return f.Process == "guilty" })
	})
	require.Len(t, small.Faults, 1)
	require.Zero(t, small.Clients+small.Contenders+small.Guests)
}
