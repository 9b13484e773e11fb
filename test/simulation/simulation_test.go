package simulation

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/test/simulation/schedule"
)

var (
	seedsFlag  = flag.Int("simulation.seeds", 24, "how many seeds to run")
	timeFlag   = flag.Duration("simulation.time", 0, "how long to run seeds, in place of a number of them")
	seedFlag   = flag.Uint64("simulation.seed", 1, "the first seed (0 means a random one)")
	faultsFlag = flag.String("simulation.faults", "", "classes of faults, separated by commas (empty means all)")
	recordFlag = flag.String("simulation.record", "", "file with the record of a run to repeat, in place of seeds")
	folderFlag = flag.String("simulation.folder", "", "folder for the records and stories of failing runs (empty means none)")
	logFlag    = flag.Bool("simulation.log", false, "print the logs of the processes")
	shrinkFlag = flag.Bool("simulation.shrink", true, "search the smallest failing run")
	lanesFlag  = flag.Int("simulation.lanes", 2, "how many seeds run at once")
)

func TestMain(m *testing.M) {
	fixJitter()
	goleak.VerifyTestMain(m)
}

// play runs a schedule in a bubble of its own and makes all checks.
func play(t *testing.T, s schedule.Schedule) Outcome {
	t.Helper()
	log := zap.NewNop()
	if *logFlag {
		var err error
		log, err = zap.NewDevelopment()
		require.NoError(t, err)
	}
	var check func() Outcome
	synctest.Test(t, func(t *testing.T) {
		var err error
		check, err = simulate(s, log)
		require.NoError(t, err)
	})
	return check()
}

// shrink returns the smallest schedule that violates the same check, and its outcome.
func shrink(t *testing.T, s schedule.Schedule, check string) (schedule.Schedule, Outcome) {
	t.Helper()
	var last Outcome
	s = s.Shrink(func(candidate schedule.Schedule) bool {
		o := play(t, candidate)
		if !o.violates(check) {
			return false
		}
		last = o
		return true
	})
	if last.Violations == nil { // nothing could be left out
		last = play(t, s)
	}
	return s, last
}

// totals counts what all seeds of a test saw, so that a run which proves nothing fails.
type totals struct {
	mu                                              sync.Mutex
	seeds, turns                                    int
	takeovers, retractions, replayed, inDoubt, hits int
	kinds                                           map[schedule.Kind]int
	simulated                                       time.Duration
}

func (c *totals) add(o Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seeds++
	c.turns += o.Turns
	c.takeovers += o.Seen.Takeovers
	c.retractions += o.Seen.Retractions
	c.replayed += o.Seen.ReplayedResults
	c.inDoubt += o.Seen.InDoubt
	c.simulated += o.Took
	if c.kinds == nil {
		c.kinds = map[schedule.Kind]int{}
	}
	for kind, n := range o.Hits {
		c.kinds[kind] += n
		c.hits += n
	}
}

// TestSimulation runs a mesh under the faults of each seed and checks every promise.
func TestSimulation(t *testing.T) {
	if *recordFlag != "" {
		return // TestRecord repeats it
	}
	first := *seedFlag
	if first == 0 {
		first = rand.Uint64() >> 32
	}
	var only []string
	if *faultsFlag != "" {
		only = strings.Split(*faultsFlag, ",")
		for _, class := range only {
			require.Contains(t, schedule.ClassNames(), class)
		}
	}
	t.Logf("seeds from %d", first)
	var sum totals
	began := time.Now()
	var next atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for range *lanesFlag {
			t.Run("lane", func(t *testing.T) {
				t.Parallel()
				for n := next.Add(1) - 1; !t.Failed(); n = next.Add(1) - 1 {
					if *timeFlag == 0 && n >= int64(*seedsFlag) || *timeFlag > 0 && time.Since(began) > *timeFlag {
						return
					}
					s := schedule.New(first+uint64(n), only...)
					o := play(t, s)
					sum.add(o)
					if len(o.Violations) > 0 {
						report(t, s, o)
					}
				}
			})
		}
	})
	t.Logf("%d seeds in %s, %s simulated: %d turns, %d takeovers, %d retractions, %d replayed results, %d calls in doubt, faults %v", sum.seeds,
		time.Since(began).Round(time.Second), sum.simulated.Round(time.Second), sum.turns, sum.takeovers, sum.retractions, sum.replayed, sum.inDoubt, sum.kinds)
	if sum.seeds >= 20 && len(only) == 0 && !t.Failed() { // otherwise the seeds prove nothing
		require.Greater(t, sum.turns, 4*sum.seeds)
		for what, n := range map[string]int{"takeovers": sum.takeovers, "retractions": sum.retractions, "replayed results": sum.replayed, "faults": sum.hits} {
			require.Positive(t, n, what)
		}
	}
}

// report fails the test with the story of the smallest failing schedule.
func report(t *testing.T, s schedule.Schedule, o Outcome) {
	t.Helper()
	check := o.Violations[0].Check
	if !*shrinkFlag {
		t.Errorf("seed %d: %s", s.Seed, o.Violations[0])
		return
	}
	small, last := shrink(t, s, check)
	t.Errorf("seed %d: %s\n\nThe smallest failing run has %d of %d faults:\n\n%s\nRecord:\n%s", s.Seed, o.Violations[0], len(small.Faults), len(s.Faults),
		last.Tell(small), small.Encode())
	if *folderFlag == "" {
		return
	}
	require.NoError(t, os.MkdirAll(*folderFlag, 0o700))
	name := filepath.Join(*folderFlag, fmt.Sprintf("seed-%d", s.Seed))
	require.NoError(t, os.WriteFile(name+".json", small.Encode(), 0o600))
	require.NoError(t, os.WriteFile(name+".txt", []byte(last.Tell(small)), 0o600))
	t.Logf("repeat it with: make simulate RECORD=%s.json", name)
}

// TestRecord repeats a run from its record.
func TestRecord(t *testing.T) {
	if *recordFlag == "" {
		return
	}
	text, err := os.ReadFile(*recordFlag)
	require.NoError(t, err)
	s, err := schedule.Decode(text)
	require.NoError(t, err)
	o := play(t, s)
	t.Log("\n" + o.Tell(s))
	require.Empty(t, o.Violations)
}

// A schedule survives its encoding, and the same seed always has the same schedule.
func TestSchedule_IsRepeatable(t *testing.T) {
	for seed := range uint64(50) {
		s := schedule.New(seed)
		again, err := schedule.Decode(s.Encode())
		require.NoError(t, err)
		require.Equal(t, s, again)
		require.Equal(t, s, schedule.New(seed))
		require.True(t, slices.IsSortedFunc(s.Faults, func(a, b schedule.Fault) int { return int(a.At - b.At) }))
	}
}
