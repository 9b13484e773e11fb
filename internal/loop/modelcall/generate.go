package modelcall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/troupe-dev/troupe/internal/loop/budgetcheck"
	"github.com/troupe-dev/troupe/internal/loop/journal"
	"github.com/troupe-dev/troupe/internal/loop/stop"
	"github.com/troupe-dev/troupe/internal/spans"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// modelAnswer is the outcome of one model call.
type modelAnswer struct {
	number  int
	message conversation.Message
	model   string // model that answered
	finish  event.Finish
	wasCut  bool // whether the text exceeded the limit of a message
	// incomplete is why the reply may be incomplete (empty means it is complete). It is known for a replayed reply too.
	incomplete event.Finish
	usage      execution.Usage // usage, even if the call failed
	duration   time.Duration
	replayed   bool // whether the answer comes from the journal
}

// finishReasons maps the finish reasons of models to the finish reasons of events.
var finishReasons = map[llm.Finish]event.Finish{
	llm.FinishStop: event.FinishStop, llm.FinishLength: event.FinishLength, llm.FinishCalls: event.FinishCalls, llm.FinishRefusal: event.FinishFilter,
	llm.FinishOther: event.FinishOther,
}

// generate asks the model, unless the journal contains the reply.
func (c *Caller) generate(ctx context.Context, req request) (modelAnswer, error) {
	number, digest := c.Log.NextNumber(), ""
	if c.RecordForReplay {
		digest = journal.RequestDigest(req.Request)
	}
	if s := c.Log.SealedJournal(); s != nil {
		s.AddRepeatedCall(number, digest)
	}
	if a, err := c.replayAnswer(number, req); a.replayed || err != nil {
		return a, err
	}
	reserved, err := c.reserveBudget(req)
	if err != nil {
		return modelAnswer{number: number}, err
	}
	ctx, done := c.Stop.ContextWithStop(ctx)
	defer done()
	a, err := c.callModel(ctx, number, req)
	reserved.Settle(budgetAmounts(a.usage, req.isSideCall))
	c.Control.Progress.AddUsage(a.usage, req.isSideCall)
	if err != nil {
		return a, c.finishFailedCall(ctx, a, req, err)
	}
	a.message.ToolCalls = c.ids.Assign(a.message.ToolCalls, c.Control.Turn().Messages())
	c.recordAnswer(a, digest, req.isSideCall)
	return a, c.emitCall(a, req.isSideCall)
}

// replayAnswer returns the answer of an earlier attempt from the journal, if there is one, and emits it again. It
// also replays a failure, because a handler may have continued after it.
func (c *Caller) replayAnswer(number int, req request) (modelAnswer, error) {
	e, found, err := c.Log.ModelReply(number, req.isSideCall)
	if err != nil || !found {
		return modelAnswer{number: number}, err
	}
	c.Control.Progress.AddUsage(e.Usage, req.isSideCall)
	a := modelAnswer{number: number, model: c.Model.Name(), usage: e.Usage, replayed: true, incomplete: event.Finish(e.Incomplete)}
	if e.Mode != "" {
		return a, failure.New(failure.Mode(e.Mode), "loop.Run", e.Text)
	}
	a.message = e.Reply
	if a.message.Text != "" && !req.isSideCall && !req.holdText {
		if err := c.Control.Events.Emit(event.TextDelta{Text: a.message.Text}); err != nil {
			return a, err
		}
	}
	return a, c.emitCall(a, req.isSideCall)
}

// callModel calls the model in a tracing span.
func (c *Caller) callModel(ctx context.Context, number int, req request) (modelAnswer, error) {
	ctx, span := spans.Start(ctx, "generate_content "+c.Model.Name(),
		attribute.String("gen_ai.operation.name", "generate_content"), attribute.String("gen_ai.request.model", c.Model.Name()))
	started := time.Now()
	turn := c.Control.Turn()
	a := modelAnswer{
		number: number, model: c.Model.Name(), usage: execution.Usage{ModelCalls: 1},
		message: conversation.Message{Role: conversation.RoleAssistant, Author: turn.Info().Agent, Untrusted: turn.Untrusted()},
	}
	err := c.readStream(ctx, req, &a)
	span(err, attribute.String("gen_ai.response.model", a.model), attribute.Int64("gen_ai.usage.input_tokens", a.usage.InputTokens),
		attribute.Int64("gen_ai.usage.output_tokens", a.usage.OutputTokens))
	a.duration = time.Since(started)
	message, wasCut := a.message.CutToLimit() // its calls take room too
	a.message, a.wasCut = message, a.wasCut || wasCut
	if _, ok := incompleteWarnings[a.finish]; ok {
		a.incomplete = a.finish
	} else if a.wasCut {
		a.incomplete = event.FinishLength
	}
	return a, err
}

// readStream reads the deltas of the model into a. It emits their text and thoughts, unless the request is a side
// call or its text is held back. It drops the text that no message can hold.
func (c *Caller) readStream(ctx context.Context, req request, a *modelAnswer) error {
	thought := "" // collected text that has not been emitted
	for delta, err := range c.Model.Generate(ctx, req.Request) {
		if c.Stop.IsInterrupted(ctx) {
			return c.Stop.Cause(ctx)
		}
		if err != nil {
			return err
		}
		a.model, a.finish = cmp.Or(delta.Model, a.model), cmp.Or(finishReasons[delta.Finish], a.finish)
		text := ""
		if !a.wasCut {
			text = conversation.Truncate(delta.Text, conversation.MaxMessageBytes-len(a.message.Text))
			a.wasCut = len(text) < len(delta.Text)
		}
		a.message.Text += text
		a.message.ToolCalls = append(a.message.ToolCalls, delta.ToolCalls...)
		a.usage = a.usage.Add(delta.Usage)
		if req.isSideCall || req.holdText {
			continue
		}
		thought += delta.Thought
		if text == "" {
			continue
		}
		if err := c.emitThought(&thought); err != nil {
			return err
		}
		if err := c.Control.Events.Emit(event.TextDelta{Text: text}); err != nil {
			return err
		}
	}
	if err := c.emitThought(&thought); err != nil {
		return err
	}
	if ctx.Err() != nil { // the stream ended without an error
		return c.Stop.Cause(ctx)
	}
	return nil
}

// maxThoughtBytes is the longest text of a thinking event.
const maxThoughtBytes = 16 << 10

// emitThought emits the collected thought of the model, if there is one, and clears it. A long thought becomes several
// events.
func (c *Caller) emitThought(thought *string) error {
	left := conversation.Truncate(*thought, conversation.MaxMessageBytes)
	*thought = ""
	for left != "" {
		text := conversation.Truncate(left, maxThoughtBytes)
		left = left[len(text):]
		if err := c.Control.Events.Emit(event.Thinking{Topic: event.Reasoning, Text: text}); err != nil {
			return err
		}
	}
	return nil
}

// finishFailedCall returns the error of a failed call. It emits the call if its content was filtered. It records a
// failed side call, because the handler may continue.
func (c *Caller) finishFailedCall(ctx context.Context, a modelAnswer, req request, err error) error {
	if refused, ok := errors.AsType[*llm.Error](err); ok && refused.Kind == llm.ContentFiltered {
		a.finish = event.FinishFilter
		err = cmp.Or(c.emitCall(a, req.isSideCall), err)
	}
	if req.isSideCall && !errors.Is(err, stop.ErrStopped) && ctx.Err() == nil { // the handler may continue
		c.recordFailure(a, true, err)
	}
	return err
}

// recordAnswer writes the answer to the journal. The commit of the step stores the final reply, so that reply is
// recorded only if the step continues or is recorded for replay.
func (c *Caller) recordAnswer(a modelAnswer, digest string, side bool) {
	entry := execution.Entry{
		Number: a.number, Phase: execution.Done, Digest: digest, Reply: a.message, Incomplete: string(a.incomplete), Usage: a.usage, SideCall: side,
	}
	ends := !side && len(a.message.ToolCalls) == 0 && !c.RecordFinalReply
	entry.Late = ends && c.RecordForReplay
	if ends && !c.RecordForReplay {
		c.Log.DeferReply(entry)
		return
	}
	c.Log.Record(entry)
}

// recordFailure records that a call failed, because a handler may continue after it. A successor then fails in the
// same way instead of asking the model again under the same number.
func (c *Caller) recordFailure(a modelAnswer, side bool, err error) {
	mode := failure.ModeOf(err)
	if mode == failure.Unknown {
		mode = failure.ResourceAPI
	}
	text := "the model did not answer" // the text of other errors may contain secrets
	if e, ok := errors.AsType[*failure.Error](err); ok {
		text = e.Message
	}
	c.Log.Record(execution.Entry{Number: a.number, Phase: execution.Done, Usage: a.usage, SideCall: side, Mode: string(mode), Text: text})
}

// emitCall emits the event of a finished model call, and a warning if the answer may be incomplete.
func (c *Caller) emitCall(a modelAnswer, side bool) error {
	call := event.ModelCall{
		Model: a.model, ToolCalls: len(a.message.ToolCalls), Usage: a.usage, Duration: a.duration, Replayed: a.replayed, Finish: a.finish,
	}
	if !side {
		call.Iteration = c.Control.Turn().Iteration()
	}
	if err := c.Control.Events.Emit(call); err != nil || side {
		return err
	}
	if warning, ok := incompleteWarnings[a.finish]; ok {
		return c.Control.Events.Emit(warning)
	}
	if a.wasCut {
		return c.Control.Events.Emit(event.Warning{Reason: "TEXT_CUT", Message: fmt.Sprintf(
			"The model said more than the %d bytes that a message may have; the rest is cut off.", conversation.MaxMessageBytes)})
	}
	return nil
}

// incompleteWarnings maps the finish reasons of a possibly incomplete answer to warnings.
var incompleteWarnings = map[event.Finish]event.Warning{
	event.FinishLength: {
		Reason: "ANSWER_CUT",
		Message: "The model's answer reached its length limit, so text or arguments may be missing. " +
			"Ask for less at once, or raise the model's limit of output tokens.",
	},
	event.FinishFilter: {Reason: "ANSWER_FILTERED", Message: "The model or a content filter of its provider declined a part of the answer."},
	event.FinishOther: {
		Reason:  "ANSWER_END_UNKNOWN",
		Message: "The model's provider ended the answer for a reason that Troupe does not know, so the answer may be incomplete.",
	},
}

// reserveBudget reserves budget for a model call: the estimated tokens of the request and one token of output. The
// real output and its cost are only known after the call.
func (c *Caller) reserveBudget(req request) (budget.Reservation, error) {
	if c.Budget == nil {
		return budget.Reservation{}, nil
	}
	tokens := 1 + conversation.EstimateTokens(conversation.Message{Text: req.System})
	for _, m := range req.Messages {
		tokens += conversation.EstimateTokens(m)
	}
	for _, t := range req.Tools {
		tokens += conversation.EstimateTokens(conversation.Message{Text: t.Description}) + int64(len(t.Schema))/4
	}
	return budgetcheck.Reserve(c.Budget, c.Control.Events,
		budget.Amounts{Iterations: iterationCount(req.isSideCall), ModelCalls: 1, Tokens: tokens, Cost: 1})
}

// budgetAmounts converts the usage of a model call to the amounts that the budget counts.
func budgetAmounts(u execution.Usage, side bool) budget.Amounts {
	return budget.Amounts{
		Iterations: iterationCount(side), ModelCalls: 1, Tokens: u.InputTokens + u.OutputTokens, Cost: u.CostMicros,
	}
}

// iterationCount returns how many iterations a call counts as. Side calls count as none.
func iterationCount(side bool) int64 {
	if side {
		return 0
	}
	return 1
}
