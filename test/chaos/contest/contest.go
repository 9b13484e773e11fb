// Package contest has callers of the memory service that compete for turns, as workers and orchestrators do
// when one of them is wrongly believed dead: takeovers during the work of the holder, late writes, the same
// call from two places, and leases that expire. It sees epochs, which clients of the mesh do not see.
package contest

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

// Names of the checks that the callers make themselves.
const (
	Replies     = "memory replies"
	JournalKept = "journal kept"
	Whole       = "history whole"
	Refused     = "refused is not stored"
)

// Seen counts a kind of reply of the memory service.
type Seen string

// The kinds of replies that a run must have seen.
const (
	Begun        Seen = "begun"
	BegunAgain   Seen = "begun again"
	TakenOver    Seen = "taken over"
	Open         Seen = "open"
	Closed       Seen = "closed"
	Busy         Seen = "session_busy"
	KeyReused    Seen = "key_reused"
	Committed    Seen = "committed"
	Repeated     Seen = "committed again"
	Fenced       Seen = "fenced"
	NotOpen      Seen = "turn_not_open"
	BaseMismatch Seen = "base_mismatch"
	Differs      Seen = "nondeterminism"
)

// All returns the kinds of replies that a run must have seen.
var All = []Seen{Begun, BegunAgain, TakenOver, Open, Closed, Busy, KeyReused, Committed, Repeated, Fenced, NotOpen, BaseMismatch, Differs}

// Contest is the callers of a run. Safe for concurrent use.
type Contest struct {
	stores   []memory.Store // connections to the memory service; each call picks one
	sessions *history.Log
	epochs   *history.Log
	prefix   string
	seed     uint64
	running  sync.WaitGroup
	last     chan struct{} // closed by finish
	finish   func()

	mu    sync.Mutex
	seen  map[Seen]int
	found []violation.Violation
	turns int
}

// New returns a contest over connections to one memory service. The names of its sessions begin with the
// prefix; the games depend on the seed.
func New(clock *history.Clock, prefix string, seed uint64, stores ...memory.Store) *Contest {
	last := make(chan struct{})
	return &Contest{
		stores: stores, sessions: history.NewLog(clock), epochs: history.NewLog(clock), prefix: prefix, seed: seed,
		last: last, finish: sync.OnceFunc(func() { close(last) }), seen: map[Seen]int{},
	}
}

// Go starts one game for each session, played until Finish.
func (c *Contest) Go(ctx context.Context, sessions int) {
	for n := range sessions {
		name := fmt.Sprintf("%s-%d", c.prefix, n)
		g := &game{
			Contest: c, first: name, name: name, rng: rand.New(rand.NewPCG(c.seed, uint64(n))),
			unresolved: map[string]attempt{},
		}
		c.running.Go(func() {
			if err := g.play(ctx); err != nil && ctx.Err() == nil {
				c.violated(Replies, "%s: %v", g.name, err)
				_ = g.load(ctx) // the stored state is more reliable than the reply
			}
		})
	}
}

// Finish ends all games after their current turn. It may be called again.
func (c *Contest) Finish() {
	c.finish()
	c.running.Wait()
}

// Found returns the violations that callers have found so far.
func (c *Contest) Found() []violation.Violation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]violation.Violation(nil), c.found...)
}

// Seen returns the counts of replies so far.
func (c *Contest) Seen() map[Seen]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.seen)
}

// Turns returns how many turns were committed.
func (c *Contest) Turns() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.turns
}

// Histories checks models M1 and M3.
func (c *Contest) Histories() []violation.Violation {
	return append(history.CheckSessionLog(c.sessions), history.CheckEpochs(c.epochs)...)
}

func (c *Contest) saw(reply Seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[reply]++
}

func (c *Contest) violated(check, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found = append(c.found, violation.Newf(check, format, args...))
}
