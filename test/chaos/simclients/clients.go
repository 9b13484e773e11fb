// Package simclients simulates the clients of a chaos run. Each client has its own sessions and repeats every
// request until it has a result. It varies how it sends requests, as real clients do: once, from sixteen
// callers at once, with a disconnect in the middle, in competition with another request of the session, or
// with a request id that was already used.
package simclients

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/test/chaos/history"
	"github.com/troupe-dev/troupe/test/chaos/verify"
	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// The checks that the clients make themselves.
const (
	CheckLiveness   = "liveness"
	CheckCompletion = "turn completes"
	CheckRejection  = "refusal"
)

// answerDeadline is the time after the last fault within which every client must have its answer, by default.
const answerDeadline = 15 * time.Second

// BurstSize is the number of callers that send one request at once (R9).
const BurstSize = 16

// RequestMark returns the name of a request: its session id and request id. It is the text of the request and
// identifies the request in the ledger.
func RequestMark(session, request string) string { return session + "/" + request }

// Clients is the group of simulated clients of a run. It is safe for concurrent use.
type Clients struct {
	Recovery *RecoveryTimes
	// AnswerDeadline is the time after the last fault within which every client must have its answer.
	AnswerDeadline time.Duration

	record *runRecord
	conn   *recordingConn
	client *client.Client
	prefix string // prefix of the session ids
	seed   uint64

	running sync.WaitGroup
	done    chan struct{} // closed by finish
	finish  func()
}

// New returns clients that use a connection, which the caller must close. The ids of their sessions begin with the
// prefix. The seed decides what each client does.
func New(conn grpc.ClientConnInterface, clock *history.Clock, prefix string, seed uint64) *Clients {
	finished := make(chan struct{})
	c := &Clients{
		Recovery: NewRecoveryTimes(), AnswerDeadline: answerDeadline, record: newRecord(clock), prefix: prefix, seed: seed,
		done: finished, finish: sync.OnceFunc(func() { close(finished) }),
	}
	c.conn = newRecordingConn(conn, c.Recovery.recordEvent, c.Recovery.removeTurn)
	c.client = client.New(c.conn)
	return c
}

// Start starts the clients. They make requests until Finish is called.
func (c *Clients) Start(ctx context.Context, clients int) {
	for n := range clients {
		one := &caller{clients: c, record: c.record, number: n, rng: rand.New(rand.NewPCG(c.seed, uint64(n)))}
		c.running.Go(func() { one.run(ctx) })
	}
}

// Finish lets every client complete its requests and run one more turn. It must be called after the last
// fault. It records a violation when that takes too long. Finish may be called again.
func (c *Clients) Finish() {
	began := time.Now()
	c.finish()
	c.running.Wait()
	if took := time.Since(began); took > c.AnswerDeadline {
		c.record.addViolation(CheckLiveness, "the last client had its answer %s after the last fault, want %s", took.Round(time.Millisecond), c.AnswerDeadline)
	}
}

// Counts holds how many requests of each kind the clients made.
type Counts struct {
	Turns, Failed, Bursts, Disconnects int
	Streams                            int
}

// Counts returns the counts so far.
func (c *Clients) Counts() Counts {
	t := c.record.snapshot()
	t.Streams = len(c.conn.allStreams())
	return t
}

// Streams returns all event streams so far.
func (c *Clients) Streams() []verify.Stream { return c.conn.allStreams() }

// Violations returns the violations that the clients found so far.
func (c *Clients) Violations() []violation.Violation { return c.record.violations() }

// RequestedMarks returns the marks of all requests that were sent, and so of all turns that may run.
func (c *Clients) RequestedMarks() map[string]bool { return c.record.requestedMarks() }

// CommittedSteps returns what the steps of all acknowledged turns committed.
func (c *Clients) CommittedSteps() []verify.CommittedStep { return c.record.committedSteps() }

// CheckHistories returns the violations of models M1 and M2 in the recorded histories.
func (c *Clients) CheckHistories() []violation.Violation { return c.record.checkHistories() }

// CheckSessions compares the final sessions with the acknowledged turns, and adds what it finds to
// Violations.
func (c *Clients) CheckSessions(ctx context.Context) error {
	for _, session := range c.record.acknowledgedSessions() {
		messages, err := c.listMessages(ctx, session)
		if err != nil {
			return err
		}
		c.record.checkSession(session, messages)
	}
	return nil
}
