// Package contention runs callers of the memory service that compete for turns. Workers and orchestrators do the
// same when one of them is wrongly believed dead. The callers take over turns whose holder is alive, write late,
// send one call from two places, and let leases expire. Unlike clients of the mesh, they see epochs, so their
// histories can be checked against model M3.
package contention

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/test/chaos/history"
	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// The checks that the callers make themselves.
const (
	CheckReplies           = "memory replies"
	CheckJournalKept       = "journal kept"
	CheckWholeHistory      = "history whole"
	CheckRejectedNotStored = "refused is not stored"
)

// Reply names a kind of reply of the memory service.
type Reply string

// The kinds of replies that a run must have seen.
const (
	Begun            Reply = "begun"
	BegunAgain       Reply = "begun again"
	TakenOver        Reply = "taken over"
	Open             Reply = "open"
	Closed           Reply = "closed"
	Busy             Reply = "session_busy"
	KeyReused        Reply = "key_reused"
	Committed        Reply = "committed"
	Repeated         Reply = "committed again"
	Fenced           Reply = "fenced"
	NotOpen          Reply = "turn_not_open"
	BaseMismatch     Reply = "base_mismatch"
	Nondeterministic Reply = "nondeterminism"
)

// AllReplies returns the kinds of replies that a run must have seen.
var AllReplies = []Reply{Begun, BegunAgain, TakenOver, Open, Closed, Busy, KeyReused, Committed, Repeated, Fenced, NotOpen, BaseMismatch, Nondeterministic}

// Run is a group of competing callers. It is safe for concurrent use.
type Run struct {
	stores   []memory.Store // connections to the memory service; each call picks one
	sessions *history.Log
	epochs   *history.Log
	prefix   string
	seed     uint64
	running  sync.WaitGroup
	done     chan struct{} // closed by finish
	finish   func()

	mu         sync.Mutex
	replies    map[Reply]int
	violations []violation.Violation
	turns      int
}

// New returns a run over connections to one memory service. Its session names begin with the prefix. The seed
// decides what the callers do.
func New(clock *history.Clock, prefix string, seed uint64, stores ...memory.Store) *Run {
	last := make(chan struct{})
	return &Run{
		stores: stores, sessions: history.NewLog(clock), epochs: history.NewLog(clock), prefix: prefix, seed: seed,
		done: last, finish: sync.OnceFunc(func() { close(last) }), replies: map[Reply]int{},
	}
}

// Start starts one goroutine for each session. The goroutines run until Finish is called.
func (r *Run) Start(ctx context.Context, sessions int) {
	for n := range sessions {
		name := fmt.Sprintf("%s-%d", r.prefix, n)
		g := &sessionRun{
			Run: r, prefix: name, name: name, rng: rand.New(rand.NewPCG(r.seed, uint64(n))),
			unresolved: map[string]rejectedWrite{},
		}
		r.running.Go(func() {
			if err := g.run(ctx); err != nil && ctx.Err() == nil {
				r.addViolation(CheckReplies, "%s: %v", g.name, err)
				_ = g.loadSession(ctx) // the stored state is more reliable than the reply
			}
		})
	}
}

// Finish stops all callers after their current turn. It may be called again.
func (r *Run) Finish() {
	r.finish()
	r.running.Wait()
}

// Violations returns the violations that callers have found so far.
func (r *Run) Violations() []violation.Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]violation.Violation(nil), r.violations...)
}

// ReplyCounts returns how often each kind of reply was received so far.
func (r *Run) ReplyCounts() map[Reply]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.replies)
}

// Turns returns how many turns were committed.
func (r *Run) Turns() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.turns
}

// Histories returns the violations of models M1 and M3 in the recorded histories.
func (r *Run) Histories() []violation.Violation {
	return append(history.CheckSessionLog(r.sessions), history.CheckEpochs(r.epochs)...)
}

func (r *Run) countReply(reply Reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replies[reply]++
}

func (r *Run) addViolation(check, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations = append(r.violations, violation.Newf(check, format, args...))
}
