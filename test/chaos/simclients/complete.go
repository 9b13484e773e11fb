package simclients

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

// completeRequest repeats a request until it has a result, is rejected for good, or ctx ends. It records a
// violation in the last two cases.
func (c *Clients) completeRequest(ctx context.Context, req *troupev1.OrchestrateRequest) {
	mark := req.GetText()
	began := c.record.sessions.Now()
	for backoff := retry.NewBackoff(); ; {
		events, err := c.collectEvents(ctx, cloneRequest(req))
		switch {
		case err == nil:
			c.checkResult(ctx, began, mark, req.GetSessionId(), events)
			return
		case ctx.Err() != nil:
			c.record.addViolation(CheckLiveness, "%s has no answer: %v", mark, err)
			return
		case !isTransient(err):
			c.record.addViolation(CheckRejection, "%s: %v", mark, err)
			return
		}
		if backoff.Wait(ctx) != nil {
			c.record.addViolation(CheckLiveness, "%s has no answer: %v", mark, err)
			return
		}
	}
}

// isTransient reports whether the same request may succeed later.
func isTransient(err error) bool { return failure.ModeOf(err).Retryable() }

// cloneRequest returns a copy of the request, because the client may modify it.
func cloneRequest(req *troupev1.OrchestrateRequest) *troupev1.OrchestrateRequest {
	return proto.CloneOf(req)
}

// collectEvents sends a request and returns all events up to its result.
func (c *Clients) collectEvents(ctx context.Context, req *troupev1.OrchestrateRequest) (events []*troupev1.Event, _ error) {
	for e, err := range c.client.Turn(ctx, req) {
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

// checkResult checks and records the result of a request.
func (c *Clients) checkResult(ctx context.Context, began int64, mark, session string, events []*troupev1.Event) {
	if len(events) == 0 || events[len(events)-1].GetTurnResult() == nil {
		c.record.addViolation(CheckCompletion, "%s: a stream of %d events without a result", mark, len(events))
		return
	}
	result := events[len(events)-1].GetTurnResult()
	told := history.TurnResponse{Result: result.GetOutcome().String() + " " + result.GetText() + " " + result.GetFailure().GetMode().String()}
	c.record.registry.Add(began, history.TurnRequest{Key: mark, Payload: mark}, told)
	if result.GetOutcome() != troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED {
		c.checkFailure(mark, result)
		return
	}
	at := c.record.sessions.Now()
	answers, last := committedTexts(events)
	if len(answers) == 0 { // the trace was not kept, and the answer comes from the turn record
		if answers, last = c.storedAnswers(ctx, session, mark); len(answers) == 0 || answers[len(answers)-1] != result.GetText() {
			c.record.addViolation(verify.HistoryComplete, "%s was answered %q, and its session has the answers %q", mark, result.GetText(), answers)
			return
		}
	}
	if want := c.record.stepCount(mark); len(answers) != want {
		c.record.addViolation(CheckCompletion, "%s has the results of %d steps, want %d", mark, len(answers), want)
		return
	}
	c.record.addAcknowledged(session, mark, answers, last, at)
}

// checkFailure records a turn that failed. The only accepted reason is that three attempts were lost.
func (c *Clients) checkFailure(mark string, result *troupev1.TurnResult) {
	c.record.addFailure(mark)
	if why := grpcfailure.FromProto(result.GetFailure()); why == nil || why.Mode != failure.AttemptsExhausted {
		c.record.addViolation(CheckCompletion, "%s at %s ended as %s: %v", mark, time.Now().Format(time.StampMilli),
			strings.TrimPrefix(result.GetOutcome().String(), "TURN_OUTCOME_"), result.GetFailure())
	}
}

// committedTexts returns the texts that the steps committed, and the sequence of the last message after them.
func committedTexts(events []*troupev1.Event) (answers []string, last int64) {
	for _, e := range events {
		if r := e.GetStepFinished().GetResult(); r != nil && r.GetFailure() == nil {
			answers, last = append(answers, r.GetText()), r.GetSequence()
		}
	}
	return answers, last
}

// storedAnswers returns the answers to a request in its session, and the sequence of the last answer.
func (c *Clients) storedAnswers(ctx context.Context, session, mark string) (answers []string, last int64) {
	messages, err := c.listMessages(ctx, session)
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

// listMessages reads all messages of a session. It retries while the store is unavailable.
func (c *Clients) listMessages(ctx context.Context, session string) (all []*troupev1.Message, _ error) {
	for {
		after := int64(len(all))
		resp, err := retry.Do(ctx, func(ctx context.Context) (*troupev1.ListMessagesResponse, error) {
			resp, err := c.client.Sessions.ListMessages(ctx, &troupev1.ListMessagesRequest{SessionId: session, AfterSequence: after, PageSize: 1000})
			return resp, grpcfailure.FromStatus("clients.messages", err)
		})
		if err != nil || len(resp.GetMessages()) == 0 {
			return all, err
		}
		all = append(all, resp.GetMessages()...)
	}
}
