package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/troupe-dev/troupe/internal/loop/journal"
	"github.com/troupe-dev/troupe/internal/spans"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// ask calls the model once, with its handlers, and returns what it said as they leave it.
func (r *run) ask(ctx context.Context) (*hook.LLMReply, error) {
	req := &hook.LLMRequest{Turn: r.turn, System: r.in.System}
	if len(r.in.Choices) == 0 {
		req.Tools = r.tools.Specs()
	}
	err := r.patiently(ctx, func(ctx context.Context) error { return r.Handlers.BeforeLLM(ctx, req) })
	if err != nil || r.Progress.Ended() {
		return nil, err
	}
	if r.stopping() {
		return nil, errStop
	}
	if err := conversation.CheckRounds(r.turn.Messages()); err != nil {
		return nil, failure.Newf(failure.AgentLogic, "loop.Run", "the messages are out of order: %s; change them with Add and Replace", err)
	}
	r.read(len(r.in.Choices) == 0)
	reply := req.Reply
	if r.quiet = req.Quiet; reply == nil {
		if reply, err = r.model(ctx, req); err != nil {
			return nil, err
		}
	}
	reply.Turn = r.turn
	r.Conversation.HoldAdded()
	if err := r.Handlers.AfterLLM(ctx, reply); err != nil {
		return nil, err
	}
	reply.ToolCalls = r.named(reply.ToolCalls)
	for _, c := range reply.ToolCalls {
		r.ids[c.ID] = true
	}
	if r.quiet && reply.Text != "" && !r.Progress.Ended() {
		return reply, r.Events.Emit(event.TextDelta{Text: reply.Text})
	}
	return reply, nil
}

// model asks the model, or a handler in its place when it fails.
func (r *run) model(ctx context.Context, req *hook.LLMRequest) (*hook.LLMReply, error) {
	said, usage, replayed, err := r.generate(ctx, llm.Request{
		System: req.System, Messages: r.turn.Messages(), Tools: req.Tools, Choices: r.in.Choices,
	}, false)
	if err == nil {
		return &hook.LLMReply{Turn: r.turn, Text: said.Text, ToolCalls: said.ToolCalls, Usage: usage, Replayed: replayed}, nil
	}
	if errors.Is(err, errStop) || errors.Is(err, errDeaf) || ctx.Err() != nil || r.in.Budget.Refusal() != nil {
		return nil, err
	}
	failed, number := &hook.LLMFailure{Turn: r.turn, Err: err}, r.number
	if r.Handlers.HandlesLLMError() && !replayed {
		r.failedAt(number, usage, err, false)
	}
	if err := r.Handlers.OnLLMError(ctx, failed); err != nil {
		return nil, err
	}
	if failed.Reply == nil {
		return nil, err
	}
	return failed.Reply, nil
}

// failedAt notes that a model call failed and that a handler may have gone on from there: so
// does a successor, instead of asking again under the same number.
func (r *run) failedAt(number int, usage execution.Usage, err error, aside bool) {
	mode := failure.ModeOf(err)
	if mode == failure.Unknown {
		mode = failure.ResourceAPI
	}
	r.record(execution.Entry{Number: number, Phase: execution.Done, Usage: usage, Aside: aside, Mode: string(mode), Text: plain(err)})
}

// plain is what may be stored of an error: its message, if it has one for others.
func plain(err error) string {
	if e, ok := errors.AsType[*failure.Error](err); ok {
		return e.Message
	}
	return "the model did not answer"
}

// aside asks the model for a handler.
func (r *run) aside(ctx context.Context, req llm.Request) (conversation.Message, error) {
	said, _, _, err := r.generate(ctx, req, true)
	return said, err
}

// generate asks the model, unless the journal knows what it said. What it says aside is not
// told piece by piece.
func (r *run) generate(ctx context.Context, req llm.Request, aside bool) (said conversation.Message, usage execution.Usage, replayed bool, err error) {
	r.number++
	number, digest := r.number, ""
	if r.in.Recorded {
		digest = journal.RequestDigest(req)
	}
	if s := r.sealed(); s != nil {
		s.Asked(number, digest)
	}
	if said, usage, replayed, err = r.said(number, aside); replayed || err != nil {
		return said, usage, replayed, err
	}
	held, err := r.affordModel(req, aside)
	if err != nil {
		return said, usage, false, err
	}
	ctx, done := r.interruptible(ctx)
	defer done()
	ctx, span := spans.Start(ctx, "generate_content "+r.loop.Model.Name(),
		attribute.String("gen_ai.operation.name", "generate_content"), attribute.String("gen_ai.request.model", r.loop.Model.Name()))
	started := time.Now()
	said, by, usage, err := r.stream(ctx, req, aside)
	span(err, attribute.String("gen_ai.response.model", by.model), attribute.Int64("gen_ai.usage.input_tokens", usage.InputTokens),
		attribute.Int64("gen_ai.usage.output_tokens", usage.OutputTokens))
	held.Settle(consumed(usage, aside))
	r.Progress.AddUsage(usage, aside)
	if err != nil {
		if refused, ok := errors.AsType[*llm.Error](err); ok && refused.Kind == llm.Refused {
			by.finish = event.FinishFilter
			err = cmp.Or(r.Events.Emit(r.called(by, said, usage, aside, time.Since(started), false)), err)
		}
		if aside && !errors.Is(err, errStop) && ctx.Err() == nil {
			r.failedAt(number, usage, err, true) // the handler may go on
		}
		return said, usage, false, err
	}
	said.ToolCalls = r.named(said.ToolCalls)
	entry := execution.Entry{Number: number, Phase: execution.Done, Digest: digest, Reply: said, Usage: usage, Aside: aside}
	ends := !aside && len(said.ToolCalls) == 0 && !r.in.Keep
	entry.Late = ends && r.in.Recorded
	if !ends || r.in.Recorded {
		r.record(entry)
	} else { // it ends the step, whose commit keeps it, unless a handler makes more of it
		r.owed = &entry
	}
	return said, usage, false, r.Events.Emit(r.called(by, said, usage, aside, time.Since(started), false))
}

// called is the event of a model call, with the model that answered.
func (r *run) called(by heard, said conversation.Message, usage execution.Usage, aside bool, took time.Duration, replayed bool) event.ModelCall {
	call := event.ModelCall{Model: by.model, ToolCalls: len(said.ToolCalls), Usage: usage, Duration: took, Replayed: replayed, Finish: by.finish}
	if !aside {
		call.Iteration = r.turn.Iteration()
	}
	return call
}

// heard is what is known of an answer beside its words: who gave it, and why it ended.
type heard struct {
	model  string
	finish event.Finish
}

// finishes are the words of events for those of models.
var finishes = map[llm.Finish]event.Finish{
	llm.FinishStop: event.FinishStop, llm.FinishLength: event.FinishLength, llm.FinishCalls: event.FinishCalls, llm.FinishRefusal: event.FinishFilter,
}

// stream reads what the model says, and who says it.
func (r *run) stream(ctx context.Context, req llm.Request, aside bool) (said conversation.Message, by heard, usage execution.Usage, err error) {
	said = conversation.Message{Role: conversation.RoleAssistant, Author: r.turn.Info().Agent, Untrusted: r.turn.Untrusted()}
	by, usage = heard{model: r.loop.Model.Name()}, execution.Usage{ModelCalls: 1}
	for delta, err := range r.loop.Model.Generate(ctx, req) {
		if r.signalled() || ctx.Err() != nil {
			return said, by, usage, r.halted(ctx)
		}
		if err != nil {
			return said, by, usage, err
		}
		by.model, by.finish = cmp.Or(delta.Model, by.model), cmp.Or(finishes[delta.Finish], by.finish)
		said.Text += delta.Text
		said.ToolCalls = append(said.ToolCalls, delta.ToolCalls...)
		usage = usage.Add(delta.Usage)
		if delta.Text == "" || aside || r.quiet {
			continue
		}
		if err := r.Events.Emit(event.TextDelta{Text: delta.Text}); err != nil {
			return said, by, usage, err
		}
	}
	if ctx.Err() != nil { // a model that just falls silent
		return said, by, usage, r.halted(ctx)
	}
	return said, by, usage, nil
}

// named gives calls whose id is missing, or was used before in this step, one of their
// own: each tool message must find its call (CO-33), also when messages were replaced.
func (r *run) named(calls []conversation.ToolCall) []conversation.ToolCall {
	if len(calls) == 0 {
		return nil
	}
	calls = slices.Clone(calls)
	for i := range calls {
		for n := 1; r.used(calls[i].ID, calls[:i]); n++ {
			calls[i].ID = fmt.Sprintf("call_%d", n)
		}
	}
	return calls
}

// used reports whether a call cannot have this id.
func (r *run) used(id string, before []conversation.ToolCall) bool {
	same := func(c conversation.ToolCall) bool { return c.ID == id }
	return id == "" || r.ids[id] || slices.ContainsFunc(before, same) ||
		slices.ContainsFunc(r.turn.Messages(), func(m conversation.Message) bool { return slices.ContainsFunc(m.ToolCalls, same) })
}
