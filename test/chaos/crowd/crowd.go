// Package crowd has the clients of a chaos run. Each has its own session and retries every request until it has
// a result, in the ways of real clients: once, from sixteen places at once, with a disconnect in between, in
// competition with another request of the session, or with a request id that stands for another request.
package crowd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/test/chaos/history"
	"github.com/troupe-dev/troupe/test/chaos/verify"
	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// Names of the checks that clients make.
const (
	Liveness = "liveness"
	Outcome  = "turn completes"
	Refusal  = "refusal"
)

// liveness is how long after the last fault every client must have an answer.
const liveness = 15 * time.Second

// Burst is how many callers send one request at once (R9).
const Burst = 16

// Mark names a request: it is the text of the user and appears in the ledger.
func Mark(session, request string) string { return session + "/" + request }

// Crowd is the clients of a run. Safe for concurrent use.
type Crowd struct {
	Recovery *Recovery

	tap      *tap
	client   *client.Client
	sessions *history.Log
	registry *history.Log
	prefix   string // of the sessions' names
	seed     uint64
	running  sync.WaitGroup
	last     chan struct{} // closed by finish
	finish   func()

	mu           sync.Mutex
	asked        map[string]asked // by mark: the turns that may run
	acknowledged map[string][]verify.Acknowledged
	failed       map[string]bool // marks of turns that failed
	found        []violation.Violation
	turns        int
	bursts       int
	leaves       int
}

// New returns a crowd over a connection, which the caller closes. The names of its sessions begin with the
// prefix; what each client does depends on the seed.
func New(conn grpc.ClientConnInterface, clock *history.Clock, prefix string, seed uint64) *Crowd {
	last := make(chan struct{})
	c := &Crowd{
		Recovery: NewRecovery(), sessions: history.NewLog(clock), registry: history.NewLog(clock), prefix: prefix, seed: seed,
		last: last, finish: sync.OnceFunc(func() { close(last) }), asked: map[string]asked{},
		acknowledged: map[string][]verify.Acknowledged{}, failed: map[string]bool{},
	}
	c.tap = newTap(conn, c.Recovery.saw, c.Recovery.left)
	c.client = client.New(c.tap)
	return c
}

// Go starts clients. They run until Finish.
func (c *Crowd) Go(ctx context.Context, clients int) {
	for n := range clients {
		v := &visitor{
			Crowd: c, number: n, session: fmt.Sprintf("%s-%d-0", c.prefix, n),
			rng: rand.New(rand.NewPCG(c.seed, uint64(n))),
		}
		c.running.Go(func() { v.run(ctx) })
	}
}

// Finish is called after the last fault. Every client completes its work and runs one more turn; it is a
// violation if that takes too long. It may be called again.
func (c *Crowd) Finish() {
	began := time.Now()
	c.finish()
	c.running.Wait()
	if took := time.Since(began); took > liveness {
		c.violated(Liveness, "the last client had its answer %s after the last fault, want %s", took.Round(time.Millisecond), liveness)
	}
}

// asked is a request that was sent.
type asked struct {
	steps int
	at    int64 // before it was sent first
}

func (c *Crowd) violated(check, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found = append(c.found, violation.Newf(check, format, args...))
}

// Tally counts what a crowd did.
type Tally struct {
	Turns, Failed, Bursts, Leaves int
	Streams                       int
}

// Tally returns the counts so far.
func (c *Crowd) Tally() Tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Tally{Turns: c.turns, Failed: len(c.failed), Bursts: c.bursts, Leaves: c.leaves, Streams: len(c.tap.all())}
}

// Streams returns all event streams so far.
func (c *Crowd) Streams() []verify.Stream { return c.tap.all() }

// Found returns the violations that clients have found so far.
func (c *Crowd) Found() []violation.Violation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]violation.Violation(nil), c.found...)
}

// Asked returns the marks of all turns that may run.
func (c *Crowd) Asked() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]bool{}
	for mark := range c.asked {
		all[mark] = true
	}
	return all
}

// Committed returns what the steps of all acknowledged turns committed.
func (c *Crowd) Committed() (all []verify.Committed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, turns := range c.acknowledged {
		for _, turn := range turns {
			for i, text := range turn.Answers {
				all = append(all, verify.Committed{Mark: turn.Mark, Step: i + 1, Text: text})
			}
		}
	}
	return all
}

// Histories checks models M1 and M2.
func (c *Crowd) Histories() []violation.Violation {
	return append(history.CheckSessionLog(c.sessions), history.CheckTurnRegistry(c.registry)...)
}
