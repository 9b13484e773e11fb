// Command mutants proves the tests: it breaks one clause of a requirement after the other, and runs the test that names the
// requirement. A test that still passes proves nothing. The working tree stays as it is, because each change is an overlay.
package main

import (
	"context"
	"embed"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/test/mutants/internal/generic"
	"github.com/troupe-dev/troupe/test/mutants/internal/list"
	"github.com/troupe-dev/troupe/test/mutants/internal/trial"
)

//go:embed lists/*.yaml
var lists embed.FS

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	only := flag.String("only", "", "run the mutations of these requirements only, such as LC or CO-22,CO-23")
	draw := flag.Int("draw", 0, "run only this many mutations, drawn at random (0 means all)")
	control := flag.Int("control", 0, "make this many generic mutations at random places instead of those of the lists")
	seed := flag.String("seed", "", "what decides the draw, such as the hash of a commit (empty means the time)")
	workers := flag.Int("p", 2, "how many trials run at once")
	flag.Parse()
	if *seed == "" {
		*seed = time.Now().Format(time.RFC3339Nano)
	}
	random := rand.New(newSource(*seed))
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if *control > 0 {
		places, err := generic.Draw(root, *control, random)
		if err != nil {
			return err
		}
		return newReport(len(places), controlShare).run(ctx, *workers, controlTrials(root, places))
	}
	folder, err := fs.Sub(lists, "lists")
	if err != nil {
		return err
	}
	mutations, err := list.Read(folder)
	if err != nil {
		return err
	}
	if *only != "" {
		mutations = list.Select(mutations, strings.Split(*only, ","))
	}
	if *draw > 0 && *draw < len(mutations) {
		random.Shuffle(len(mutations), func(i, j int) { mutations[i], mutations[j] = mutations[j], mutations[i] })
		mutations = mutations[:*draw]
	}
	list.ByPackage(mutations)
	return newReport(len(mutations), 1).run(ctx, *workers, listTrials(root, mutations))
}

// controlShare is the share of generic mutations that tests must notice. The others are explained by reading them.
const controlShare = 0.9

// newSource returns the source of randomness that a seed decides.
func newSource(seed string) rand.Source {
	var key [32]byte
	copy(key[:], seed)
	return rand.NewChaCha8(key)
}

// attempt is one mutation, with the trials of the tests that may notice it. The first test that does ends it.
type attempt struct {
	name   string
	trials []trial.Trial
}

func listTrials(root string, mutations []list.Mutation) []attempt {
	var all []attempt
	for _, m := range mutations {
		all = append(all, attempt{m.Name(), []trial.Trial{{Root: root, Change: m.Change(), Package: m.Package(), Test: m.TestName()}}})
	}
	return all
}

func controlTrials(root string, places []generic.Place) []attempt {
	var all []attempt
	for _, p := range places {
		a := attempt{name: p.String()}
		for _, pkg := range p.Tests {
			a.trials = append(a.trials, trial.Trial{Root: root, Change: p.Change, Package: pkg})
		}
		all = append(all, a)
	}
	return all
}

// run makes the trials of one mutation in order until one decides it.
func (a attempt) run(ctx context.Context) (v trial.Verdict, out string, err error) {
	for _, t := range a.trials {
		if v, out, err = t.Run(ctx); err != nil || v != trial.Survived {
			return v, out, err
		}
	}
	return v, out, nil
}

// report prints the verdict of each mutation as it comes, and counts.
type report struct {
	began  time.Time
	total  int
	wanted float64 // share of the mutations that must be killed

	mu     sync.Mutex
	counts map[trial.Verdict]int
	done   int
}

func newReport(total int, wanted float64) *report {
	return &report{began: time.Now(), total: total, wanted: wanted, counts: map[trial.Verdict]int{}}
}

// run runs all attempts, several at once, and returns an error if too few mutations were killed.
func (r *report) run(ctx context.Context, workers int, attempts []attempt) error {
	queue := make(chan attempt)
	var wg sync.WaitGroup
	for range max(workers, 1) {
		wg.Go(func() {
			for a := range queue {
				began := time.Now()
				v, out, err := a.run(ctx)
				if err != nil {
					v, out = "not tried", err.Error()
				}
				r.print(a.name, v, out, time.Since(began))
			}
		})
	}
	for _, a := range attempts {
		if ctx.Err() != nil {
			break
		}
		queue <- a
	}
	close(queue)
	wg.Wait()
	return r.summary()
}

func (r *report) print(name string, v trial.Verdict, out string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	r.counts[v]++
	fmt.Fprintf(os.Stdout, "%4d of %d  %-11s %4.0f s  %s\n", r.done, r.total, v, took.Seconds(), name)
	if v != trial.Killed && v != trial.Survived {
		fmt.Fprintln(os.Stdout, indent(lastLines(out, 12)))
	}
}

func (r *report) summary() error {
	killed, survived := r.counts[trial.Killed], r.counts[trial.Survived]
	if r.wanted < 1 { // a change at a random place may break everything, which is noticed, too
		killed += r.counts[trial.Panicked] + r.counts[trial.Hung]
	}
	others := r.total - killed - survived
	fmt.Fprintf(os.Stdout, "%d mutations: %d killed, %d survived, %d others, in %.1f min\n", r.total, killed, survived, others, time.Since(r.began).Minutes())
	counted := r.total
	if r.wanted < 1 {
		counted -= others // it need not compile, either
	}
	if r.done < r.total || float64(killed) < r.wanted*float64(counted) {
		return fmt.Errorf("%d of %d mutations were killed, want %.0f %%", killed, counted, 100*r.wanted)
	}
	return nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func indent(text string) string { return "      " + strings.ReplaceAll(text, "\n", "\n      ") }
