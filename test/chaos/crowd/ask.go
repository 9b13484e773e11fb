package crowd

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/chaos/history"
	"github.com/troupe-dev/troupe/test/chaos/verify"
)

// until sends a request repeatedly until it has a result, or ctx ends.
func (c *Crowd) until(ctx context.Context, req *troupev1.OrchestrateRequest) {
	mark := req.GetText()
	call := c.sessions.Now()
	for pace := retry.NewBackoff(); ; {
		events, err := c.collect(ctx, again(req))
		switch {
		case err == nil:
			c.answered(ctx, call, mark, req.GetSessionId(), events)
			return
		case ctx.Err() != nil:
			c.violated(Liveness, "%s has no answer: %v", mark, err)
			return
		case !passing(err):
			c.violated(Refusal, "%s: %v", mark, err)
			return
		}
		if pace.Wait(ctx) != nil {
			c.violated(Liveness, "%s has no answer: %v", mark, err)
			return
		}
	}
}

// passing reports whether a retry of the request may succeed.
func passing(err error) bool { return failure.ModeOf(err).Retryable() }

// again returns a copy, because the client may modify a request.
func again(req *troupev1.OrchestrateRequest) *troupev1.OrchestrateRequest {
	return proto.CloneOf(req)
}

// collect sends a request and records its result.
func (c *Crowd) collect(ctx context.Context, req *troupev1.OrchestrateRequest) (events []*troupev1.Event, _ error) {
	for e, err := range c.client.Turn(ctx, req) {
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

// answered records a result.
func (c *Crowd) answered(ctx context.Context, call int64, mark, session string, events []*troupev1.Event) {
	if len(events) == 0 || events[len(events)-1].GetTurnResult() == nil {
		c.violated(Outcome, "%s: a stream of %d events without a result", mark, len(events))
		return
	}
	result := events[len(events)-1].GetTurnResult()
	told := history.Told{Result: result.GetOutcome().String() + " " + result.GetText() + " " + result.GetFailure().GetMode().String()}
	c.registry.Add(call, history.Ask{Key: mark, Payload: mark}, told)
	if result.GetOutcome() != troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED {
		c.unanswered(mark, result)
		return
	}
	acknowledged := c.sessions.Now()
	answers, last := steps(events)
	if len(answers) == 0 { // the trace has expired, and the answer comes from the turn record
		if answers, last = c.stored(ctx, session, mark); len(answers) == 0 || answers[len(answers)-1] != result.GetText() {
			c.violated(verify.HistoryWhole, "%s was answered %q, and its session has the answers %q", mark, result.GetText(), answers)
			return
		}
	}
	c.mu.Lock()
	want := c.asked[mark].steps
	c.mu.Unlock()
	if len(answers) != want {
		c.violated(Outcome, "%s was told the ends of %d steps, and has %d", mark, len(answers), want)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, turn := range c.acknowledged[session] {
		if turn.Mark == mark {
			return // another caller has recorded it
		}
	}
	c.turns++
	c.acknowledged[session] = append(c.acknowledged[session], verify.Acknowledged{Mark: mark, Answers: answers})
	c.sessions.AddUntil(c.asked[mark].at, acknowledged, history.Append{Session: session, Key: mark}, history.Appended{Sequence: last})
}

// unanswered records a failed turn. A turn may fail only after three lost attempts of a step.
func (c *Crowd) unanswered(mark string, result *troupev1.TurnResult) {
	why := grpcfailure.FromProto(result.GetFailure())
	c.mu.Lock()
	c.failed[mark] = true
	c.mu.Unlock()
	if why == nil || why.Mode != failure.AttemptsExhausted {
		c.violated(Outcome, "%s at %s ended as %s: %v", mark, time.Now().Format(time.StampMilli),
			strings.TrimPrefix(result.GetOutcome().String(), "TURN_OUTCOME_"), result.GetFailure())
	}
}

// steps returns the texts that the steps committed, and the last sequence of the session after them.
func steps(events []*troupev1.Event) (answers []string, last int64) {
	for _, e := range events {
		if r := e.GetStepFinished().GetResult(); r != nil && r.GetFailure() == nil {
			answers, last = append(answers, r.GetText()), r.GetSequence()
		}
	}
	return answers, last
}

// stored returns the answers to a request in its session, and the sequence of the last.
func (c *Crowd) stored(ctx context.Context, session, mark string) (answers []string, last int64) {
	messages, err := c.messages(ctx, session)
	if err != nil {
		return nil, 0
	}
	for _, m := range answersTo(mark, messages) {
		answers, last = append(answers, m.GetParts()[0].GetText()), m.GetSequence()
	}
	return answers, last
}

// answersTo returns the complete answers to a request, in order.
func answersTo(mark string, messages []*troupev1.Message) (answers []*troupev1.Message) {
	asked := ""
	for _, m := range messages {
		switch {
		case m.GetRole() == troupev1.Role_ROLE_USER:
			asked = m.GetParts()[0].GetText()
		case asked == mark && !m.GetPartial():
			answers = append(answers, m)
		}
	}
	return answers
}
