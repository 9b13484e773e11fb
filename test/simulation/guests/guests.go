// Package guests are callers of a simulated mesh that do what the clients of the chaos suite do not: they cancel turns,
// approve and deny calls, run branches, fork, resume, and watch. Each repeats its requests until it has a result.
package guests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/chaos/ledger"
	"github.com/troupe-dev/troupe/test/chaos/verify"
	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// The checks that guests make.
const (
	CheckOutcome  = "outcome"    // a turn ends as its request says
	CheckSame     = "same twice" // a repeated request has the same result
	CheckPayments = "payments"   // an approved payment is made once, a denied one never
)

// Guests are all guests of a run. It is safe for concurrent use.
type Guests struct {
	client   *client.Client
	payments *ledger.Book
	seed     uint64
	running  sync.WaitGroup
	done     chan struct{}
	finish   func()

	mu      sync.Mutex
	found   []violation.Violation
	streams []verify.Stream
	verdict map[string]troupev1.CallVerdict // of each payment
	turns   int
}

// New returns guests that use a connection.
func New(conn grpc.ClientConnInterface, payments *ledger.Book, seed uint64) *Guests {
	done := make(chan struct{})
	return &Guests{
		client: client.New(conn), payments: payments, seed: seed, done: done, finish: sync.OnceFunc(func() { close(done) }),
		verdict: map[string]troupev1.CallVerdict{},
	}
}

// Start starts guests. They make requests until Finish is called.
func (g *Guests) Start(ctx context.Context, n int) {
	for i := range n {
		one := &guest{Guests: g, ctx: ctx, number: i, rng: rand.New(rand.NewPCG(g.seed, uint64(1000+i)))}
		g.running.Go(one.run)
	}
}

// Finish lets every guest complete its round. It may be called again.
func (g *Guests) Finish() {
	g.finish()
	g.running.Wait()
}

// Turns returns how many turns had a result.
func (g *Guests) Turns() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.turns
}

// Streams returns what the guests received.
func (g *Guests) Streams() []verify.Stream {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.streams
}

// Violations returns what the guests found, and compares the payments with their approvals.
func (g *Guests) Violations() []violation.Violation {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := g.found
	paid, keys := map[string]int{}, map[string]map[string]bool{}
	for _, c := range g.payments.Calls() {
		if c.Kind != ledger.AtMostOnce {
			continue
		}
		paid[c.Mark]++
		if keys[c.Mark] == nil {
			keys[c.Mark] = map[string]bool{}
		}
		keys[c.Mark][c.Key] = true
	}
	for key, n := range paid {
		if verdict := g.verdict[key]; verdict != troupev1.CallVerdict_CALL_VERDICT_APPROVE || n > 1 || len(keys[key]) > 1 {
			found = append(found, violation.Newf(CheckPayments, "%s was paid %d times under %d keys, and its approval was %s", key, n, len(keys[key]), verdict))
		}
	}
	return found
}

func (g *Guests) add(check, format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.found = append(g.found, violation.Newf(check, format, args...))
}

// guest is one guest.
type guest struct {
	*Guests
	ctx    context.Context //nolint:containedctx // of the run
	number int
	rng    *rand.Rand
	rounds int
}

// maxPause is the longest pause between two rounds.
const maxPause = 3 * time.Second

func (g *guest) run() {
	moves := []func(string){g.cancel, g.cancel, g.approve, g.approve, g.branches, g.fork, g.resume}
	for {
		g.rounds++
		moves[g.rng.IntN(len(moves))](fmt.Sprintf("g-%d-%d", g.number, g.rounds))
		_ = retry.Sleep(g.ctx, time.Duration(g.rng.Int64N(int64(maxPause)))) // the next round finds the end of ctx
		select {
		case <-g.done:
			return
		case <-g.ctx.Done():
			return
		default:
		}
	}
}

func text(session, request, target, said string) *troupev1.OrchestrateRequest {
	return &troupev1.OrchestrateRequest{
		SessionId: session, RequestId: request, Target: target, Input: &troupev1.OrchestrateRequest_Text{Text: said},
	}
}

// ask repeats a request until it has a result (nil means that it was rejected, or that the run ended). watching is called with
// the trace as soon as it is known.
func (g *guest) ask(mark string, req *troupev1.OrchestrateRequest, watching func(traceID string)) (result *troupev1.TurnResult, traceID string) {
	for backoff := retry.NewBackoff(); ; {
		s := verify.Stream{Mark: mark}
		var err error
		for e, failed := range g.client.Turn(g.ctx, req) {
			if failed != nil {
				err = failed
				break
			}
			if traceID = e.GetTraceId(); watching != nil {
				watching(traceID)
				watching = nil
			}
			s.Events = append(s.Events, e)
		}
		g.mu.Lock()
		g.streams = append(g.streams, s)
		g.mu.Unlock()
		if n := len(s.Events); err == nil && n > 0 && s.Events[n-1].GetTurnResult() != nil {
			g.mu.Lock()
			g.turns++
			g.mu.Unlock()
			return s.Events[n-1].GetTurnResult(), traceID
		}
		if failure.Is(err, failure.TurnNotOpen) && req.GetText() == "" {
			return nil, traceID // its orchestrator was lost before it stored who handles it; only a text can be repeated then
		}
		if g.ctx.Err() != nil || err != nil && !failure.ModeOf(err).Retryable() || backoff.Wait(g.ctx) != nil {
			g.add(CheckOutcome, "%s has no result: %v", mark, err)
			return nil, traceID
		}
	}
}

// expect checks that a result has one of the outcomes. A turn that lost three workers or orchestrators may have failed.
func (g *guest) expect(mark string, r *troupev1.TurnResult, outcomes ...troupev1.TurnOutcome) bool {
	for _, o := range outcomes {
		if r.GetOutcome() == o {
			return true
		}
	}
	lost := r.GetOutcome() == troupev1.TurnOutcome_TURN_OUTCOME_FAILED && failure.Is(grpcfailure.FromProto(r.GetFailure()), failure.AttemptsExhausted)
	if r != nil && !lost {
		g.add(CheckOutcome, "%s ended as %s: %v", mark, r.GetOutcome(), r.GetFailure())
	}
	return false
}

// repeat sends a request again and checks that it has the same result.
func (g *guest) repeat(mark string, req *troupev1.OrchestrateRequest, first *troupev1.TurnResult) {
	again, _ := g.ask(mark, req, nil)
	if first != nil && again != nil && (again.GetOutcome() != first.GetOutcome() || again.GetText() != first.GetText()) {
		g.add(CheckSame, "%s was %s %q, and is %s %q", mark, first.GetOutcome(), first.GetText(), again.GetOutcome(), again.GetText())
	}
}

// cancel cancels a turn while it runs, and watches it.
func (g *guest) cancel(session string) {
	mark, req := session+"/r1", text(session, "r1", "branches", "say "+session)
	var both sync.WaitGroup
	pause := time.Duration(g.rng.Int64N(int64(time.Second)))
	result, _ := g.ask(mark, req, func(id string) {
		both.Go(func() {
			if retry.Sleep(g.ctx, pause) == nil {
				_, _ = g.client.CancelTrace(g.ctx, &troupev1.CancelTraceRequest{TraceId: id, Reason: "the guest left"}) // it may be too late
			}
		})
		both.Go(func() { g.watch(mark, id) })
	})
	both.Wait()
	g.expect(mark, result, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED)
	g.repeat(mark, req, result)
}

// watch watches a trace to its end.
func (g *guest) watch(mark, id string) {
	s := verify.Stream{Mark: mark}
	for e, err := range g.client.Watch(g.ctx, id, 0) {
		if err != nil {
			break
		}
		s.Events = append(s.Events, e)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.streams = append(g.streams, s)
}

// approve has the agent pay, and approves or denies that.
func (g *guest) approve(session string) {
	const waits = troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED
	asked, _ := g.ask(session+"/r1", text(session, "r1", "help", "pay "+session), nil)
	if !g.expect(session+"/r1", asked, waits) {
		return
	}
	verdict := troupev1.CallVerdict_CALL_VERDICT_APPROVE
	if g.rng.IntN(3) == 0 {
		verdict = troupev1.CallVerdict_CALL_VERDICT_DENY
	}
	g.mu.Lock()
	g.verdict[session] = verdict
	g.mu.Unlock()
	answer := &troupev1.OrchestrateRequest{SessionId: session, RequestId: "r2", Input: &troupev1.OrchestrateRequest_Answers{Answers: &troupev1.Answers{
		Answers: []*troupev1.CallAnswer{{Id: asked.GetPending()[0].GetId(), Verdict: verdict}},
	}}}
	result, _ := g.ask(session+"/r2", answer, nil)
	if g.expect(session+"/r2", result, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED) {
		g.repeat(session+"/r2", answer, result)
	}
}

// branches runs branches at once.
func (g *guest) branches(session string) {
	mark, req := session+"/r1", text(session, "r1", "branches", "say "+session)
	result, _ := g.ask(mark, req, nil)
	if g.expect(mark, result, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED) {
		g.repeat(mark, req, result)
	}
}

// fork runs a turn, and then again in a new session.
func (g *guest) fork(session string) {
	result, id := g.ask(session+"/r1", text(session, "r1", "help", "say "+session), nil)
	if !g.expect(session+"/r1", result, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED) {
		return
	}
	other := session + "f"
	forked, _ := g.ask(other+"/r1", &troupev1.OrchestrateRequest{
		SessionId: other, RequestId: "r1", From: &troupev1.From{TraceId: id, Step: 1, Fork: true},
	}, nil)
	if g.expect(other+"/r1", forked, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED) && forked.GetText() != result.GetText() {
		g.add(CheckOutcome, "%s is a fork of %q and says %q", other, result.GetText(), forked.GetText())
	}
}

// resume resumes a turn that failed.
func (g *guest) resume(session string) {
	failed, id := g.ask(session+"/r1", text(session, "r1", "twice", "fail "+session), nil)
	if failed.GetOutcome() != troupev1.TurnOutcome_TURN_OUTCOME_FAILED {
		g.expect(session+"/r1", failed, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED) // the failed attempt was lost, and another one succeeded
		return
	}
	result, _ := g.ask(session+"/r2", &troupev1.OrchestrateRequest{SessionId: session, RequestId: "r2", From: &troupev1.From{TraceId: id}}, nil)
	g.expect(session+"/r2", result, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED)
}
