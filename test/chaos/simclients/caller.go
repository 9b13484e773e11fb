package simclients

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/chaos/history"
)

// caller is one of the simulated clients. Only one goroutine may use it.
type caller struct {
	clients  *Clients
	record   *runRecord
	number   int
	rng      *rand.Rand
	requests int
}

// requestsPerSession limits the requests in one session. Each round reads the whole session, so sessions must stay
// short.
const requestsPerSession = 100

// nextSession returns the session of the next request.
func (c *caller) nextSession() string {
	return fmt.Sprintf("%s-%d-%d", c.clients.prefix, c.number, c.requests/requestsPerSession)
}

// run makes requests until the clients finish. Its last turn runs while no fault is injected.
func (c *caller) run(ctx context.Context) {
	session := c.nextSession()
	for {
		select {
		case <-c.clients.done:
			c.clients.completeRequest(ctx, c.newRequest(session))
			c.loadSession(ctx, session)
			return
		case <-ctx.Done():
			return
		default:
			session = c.nextSession()
			c.runRound(ctx, session)
			c.loadSession(ctx, session)
		}
	}
}

// runRound makes one or two requests in a randomly chosen way.
func (c *caller) runRound(ctx context.Context, session string) {
	if c.rng.IntN(2) == 0 {
		var concurrent sync.WaitGroup
		defer concurrent.Wait()
		concurrent.Go(func() { c.loadSession(ctx, session) })
	}
	req := c.newRequest(session)
	switch dice := c.rng.IntN(100); {
	case dice < 55:
		c.clients.completeRequest(ctx, req)
	case dice < 65:
		c.sendBurst(ctx, req)
	case dice < 80:
		c.disconnectMidTurn(ctx, req)
		c.clients.completeRequest(ctx, req)
	case dice < 92: // one of the two finds the session busy until the other is done
		rival := c.newRequest(session)
		var both sync.WaitGroup
		both.Go(func() { c.clients.completeRequest(ctx, req) })
		both.Go(func() { c.clients.completeRequest(ctx, rival) })
		both.Wait()
	default:
		c.clients.completeRequest(ctx, req)
		c.reuseRequestID(ctx, req)
	}
}

// newRequest returns a request for a turn of one or two steps.
func (c *caller) newRequest(session string) *troupev1.OrchestrateRequest {
	c.requests++
	id := fmt.Sprintf("r%d", c.requests)
	mark := RequestMark(session, id)
	target, steps := "one", 1
	if c.rng.IntN(3) == 0 {
		target, steps = "two", 2
	}
	c.record.addRequest(mark, steps)
	return &troupev1.OrchestrateRequest{
		SessionId: session, RequestId: id, Target: target, Input: &troupev1.OrchestrateRequest_Text{Text: mark},
	}
}

// sendBurst sends the same request from many callers at once. Together the calls must cause one turn.
func (c *caller) sendBurst(ctx context.Context, req *troupev1.OrchestrateRequest) {
	c.record.countBurst()
	var all sync.WaitGroup
	for range BurstSize {
		all.Go(func() { c.clients.completeRequest(ctx, req) })
	}
	all.Wait()
}

// disconnectMidTurn sends a request and disconnects in the middle of the turn. The turn continues.
func (c *caller) disconnectMidTurn(ctx context.Context, req *troupev1.OrchestrateRequest) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.record.countDisconnect()
	events := 1 + c.rng.IntN(12)
	for _, err := range c.clients.client.Turn(ctx, cloneRequest(req)) {
		if events--; events == 0 || err != nil {
			return
		}
	}
}

// reuseRequestID sends a different request under the id of a completed one. The mesh must reject it.
func (c *caller) reuseRequestID(ctx context.Context, req *troupev1.OrchestrateRequest) {
	other := cloneRequest(req)
	other.Input = &troupev1.OrchestrateRequest_Text{Text: req.GetText() + " but different"}
	began := c.record.registry.Now()
	for backoff := retry.NewBackoff(); ; {
		_, err := c.clients.collectEvents(ctx, other)
		switch {
		case failure.Is(err, failure.KeyReused):
			c.record.registry.Add(began, history.TurnRequest{Key: req.GetText(), Payload: other.GetText()}, history.TurnResponse{Conflict: true})
			return
		case err == nil:
			c.record.addViolation(CheckRejection, "%s: another request under the same id was answered", req.GetText())
			return
		case !isTransient(err) || backoff.Wait(ctx) != nil:
			if ctx.Err() == nil {
				c.record.addViolation(CheckRejection, "%s: another request under the same id, want key_reused: %v", req.GetText(), err)
			}
			return
		}
	}
}

// loadSession reads the whole session into the history. It records no failed read, because such a read has no
// effect.
func (c *caller) loadSession(ctx context.Context, session string) {
	began := c.record.sessions.Now()
	if messages, err := c.clients.listMessages(ctx, session); err == nil {
		c.record.addLoad(began, session, messages)
	}
}
