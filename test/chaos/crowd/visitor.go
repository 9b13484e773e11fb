package crowd

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/chaos/history"
	"github.com/troupe-dev/troupe/test/chaos/verify"
	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// visitor is one client. It is not safe for concurrent use.
type visitor struct {
	*Crowd
	number   int
	session  string // replaced now and then, because each round reads all of it
	rng      *rand.Rand
	requests int
}

// requestsOfSession is about how many requests a session gets.
const requestsOfSession = 100

// run works until the crowd finishes, and ends with an undisturbed turn.
func (v *visitor) run(ctx context.Context) {
	for {
		select {
		case <-v.last:
			v.until(ctx, v.request())
			v.load(ctx)
			return
		case <-ctx.Done():
			return
		default:
			v.round(ctx)
			v.load(ctx)
		}
	}
}

// round sends one or two requests in one of the ways.
func (v *visitor) round(ctx context.Context) {
	v.session = fmt.Sprintf("%s-%d-%d", v.prefix, v.number, v.requests/requestsOfSession)
	if v.rng.IntN(2) == 0 {
		var beside sync.WaitGroup
		defer beside.Wait()
		beside.Go(func() { v.load(ctx) })
	}
	req := v.request()
	switch dice := v.rng.IntN(100); {
	case dice < 55:
		v.until(ctx, req)
	case dice < 65:
		v.burst(ctx, req)
	case dice < 80:
		v.leave(ctx, req)
		v.until(ctx, req)
	case dice < 92: // one of the two finds the session busy until the other one ends
		rival := v.request()
		var both sync.WaitGroup
		both.Go(func() { v.until(ctx, req) })
		both.Go(func() { v.until(ctx, rival) })
		both.Wait()
	default:
		v.until(ctx, req)
		v.conflict(ctx, req)
	}
}

// request sends a request for a turn of one or two steps.
func (v *visitor) request() *troupev1.OrchestrateRequest {
	v.requests++
	id := fmt.Sprintf("r%d", v.requests)
	mark := Mark(v.session, id)
	target, steps := "one", 1
	if v.rng.IntN(3) == 0 {
		target, steps = "two", 2
	}
	v.mu.Lock()
	v.asked[mark] = asked{steps, v.sessions.Now()}
	v.mu.Unlock()
	return &troupev1.OrchestrateRequest{
		SessionId: v.session, RequestId: id, Target: target, Input: &troupev1.OrchestrateRequest_Text{Text: mark},
	}
}

// burst sends one request from many places at once. They must get one turn.
func (v *visitor) burst(ctx context.Context, req *troupev1.OrchestrateRequest) {
	v.mu.Lock()
	v.bursts++
	v.mu.Unlock()
	var all sync.WaitGroup
	for range Burst {
		all.Go(func() { v.until(ctx, req) })
	}
	all.Wait()
}

// leave sends a request and disconnects during its turn, which continues.
func (v *visitor) leave(ctx context.Context, req *troupev1.OrchestrateRequest) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	v.mu.Lock()
	v.leaves++
	v.mu.Unlock()
	events := 1 + v.rng.IntN(12)
	for _, err := range v.client.Turn(ctx, again(req)) {
		if events--; events == 0 || err != nil {
			return
		}
	}
}

// conflict sends another request under the id of a finished one.
func (v *visitor) conflict(ctx context.Context, req *troupev1.OrchestrateRequest) {
	other := again(req)
	other.Input = &troupev1.OrchestrateRequest_Text{Text: req.GetText() + " but different"}
	call := v.registry.Now()
	for pace := retry.NewBackoff(); ; {
		_, err := v.collect(ctx, other)
		switch {
		case failure.Is(err, failure.KeyReused):
			v.registry.Add(call, history.Ask{Key: req.GetText(), Payload: other.GetText()}, history.Told{Conflict: true})
			return
		case err == nil:
			v.violated(Refusal, "%s: another request under the same id was answered", req.GetText())
			return
		case !passing(err) || pace.Wait(ctx) != nil:
			if ctx.Err() == nil {
				v.violated(Refusal, "%s: another request under the same id, want key_reused: %v", req.GetText(), err)
			}
			return
		}
	}
}

// load reads the whole session, except for messages of open turns.
func (v *visitor) load(ctx context.Context) {
	call := v.sessions.Now()
	messages, err := v.messages(ctx, v.session)
	if err != nil {
		return // no answer, and so no effect
	}
	v.mu.Lock()
	loaded := v.fold(messages)
	v.mu.Unlock()
	v.sessions.Add(call, history.Load{Session: v.session}, loaded)
}

// fold returns the session as model M1 sees it: its complete turns, and the sequence at which each ends.
func (c *Crowd) fold(messages []*troupev1.Message) (loaded history.Loaded) {
	mark, answers := "", 0
	for _, m := range messages {
		switch {
		case m.GetRole() == troupev1.Role_ROLE_USER:
			mark, answers = m.GetParts()[0].GetText(), 0
		case !m.GetPartial():
			answers++
			if answers == c.asked[mark].steps {
				loaded.Sequence = m.GetSequence()
				loaded.Chain = history.Chain(loaded.Chain, mark, loaded.Sequence)
			}
		}
	}
	return loaded
}

// messages reads a session, and retries while its store is away.
func (c *Crowd) messages(ctx context.Context, session string) (all []*troupev1.Message, _ error) {
	for {
		after := int64(len(all))
		resp, err := retry.Do(ctx, func(ctx context.Context) (*troupev1.ListMessagesResponse, error) {
			resp, err := c.client.Sessions.ListMessages(ctx, &troupev1.ListMessagesRequest{SessionId: session, AfterSequence: after, PageSize: 1000})
			return resp, grpcfailure.FromStatus("crowd.messages", err)
		})
		if err != nil || len(resp.GetMessages()) == 0 {
			return all, err
		}
		all = append(all, resp.GetMessages()...)
	}
}

// Stored checks the final sessions against the acknowledged turns.
func (c *Crowd) Stored(ctx context.Context) error {
	c.mu.Lock()
	sessions := slices.Sorted(maps.Keys(c.acknowledged))
	c.mu.Unlock()
	for _, session := range sessions {
		messages, err := c.messages(ctx, session)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.found = append(c.found, verify.History(session, messages, c.acknowledged[session])...)
		for mark := range c.failed {
			if answers := answersTo(mark, messages); len(answers) == c.asked[mark].steps {
				c.found = append(c.found, violation.Newf(Outcome, "%s is said to have failed, and its session has %d answers", mark, len(answers)))
			}
		}
		c.mu.Unlock()
	}
	return nil
}
