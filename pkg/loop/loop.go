// Package loop is what an agent does inside one step: it asks the model, runs the tools
// that the model asked for, and asks again, until the model answers without a tool.
//
// It is stateless and knows nothing of sessions: messages come in, an outcome goes out. With
// a journal it goes on where an attempt before it was lost, and runs nothing twice that it
// finds there (guarantees 2.8).
package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// DefaultMaxIterations is the limit of a Loop that names none.
const DefaultMaxIterations = 10

// MaxToolText is how much of a tool's result a model gets to read, in bytes.
const MaxToolText = 256 << 10

// ReasonMaxIterations is that of the warning when a step stops at its limit.
const ReasonMaxIterations = "MAX_ITERATIONS"

// Loop is what does not change between runs. It may run many times at once.
type Loop struct {
	Model         llm.Model
	Tools         *tool.Set // nil: none
	MaxIterations int       // 0: DefaultMaxIterations
}

// Input is what one run is given.
type Input struct {
	System   string
	Messages []conversation.Message // oldest first; not changed
	Choices  []string               // if any, the model decides between them and gets no tools

	Journal execution.Journal       // of the step; nil: nothing is kept
	Key     func(number int) string // idempotency key of the tool call of a number; nil: none
}

// Outcome is what a run led to.
type Outcome struct {
	Text          string                 // the model's last words
	Messages      []conversation.Message // what the run added to the messages of its input
	Calls         []Call                 // of tools, in order
	Iterations    int                    // model calls with their tool rounds
	MaxIterations bool                   // stopped at the limit; Text says so
	Usage         execution.Usage
}

// Call is one tool call that was made.
type Call struct {
	Tool   string
	Status event.ToolStatus
	Text   string // what the tool found; what went wrong if the status is not success
}

// Run goes on until the model answers without asking for a tool, or the iterations are
// used up; the latter is an outcome, not an error (CO-22 to CO-26).
//
// In a tool round the assistant message with all calls comes first; then the tools run one
// at a time in the order of the calls, and each call gets exactly one tool message (CO-29,
// CO-31, CO-33). A tool that fails, panics or does not exist makes a message that says so,
// and the run goes on (CO-35).
//
// Events go to emit in the order in which they happen; an error of emit ends the run and
// is returned as it is. An error of the model keeps its mode. When ctx ends, the error is
// agent_timeout or user_cancelled. With an error, the outcome tells what was done so far.
//
// Model calls and tool calls are numbered from 1 in the order in which they begin. A number
// that the journal knows as done is not done again; of a model's reply the text is emitted
// again, of a tool nothing. An error of the journal ends the run; nondeterminism means that
// this run asks for something else than the one that was lost.
func (l Loop) Run(ctx context.Context, in Input, emit func(event.Event) error) (Outcome, error) {
	limit := l.MaxIterations
	if limit <= 0 {
		limit = DefaultMaxIterations
	}
	r := &run{loop: l, in: in, emit: emit}
	for r.out.Iterations < limit {
		if ctx.Err() != nil {
			return r.out, stopped(ctx)
		}
		r.out.Iterations++
		answer, err := r.ask(ctx)
		if err != nil {
			return r.out, err
		}
		r.out.Messages = append(r.out.Messages, answer)
		if len(answer.ToolCalls) == 0 {
			r.out.Text = answer.Text
			return r.out, nil
		}
		for _, call := range answer.ToolCalls {
			if err := r.call(ctx, call); err != nil {
				return r.out, err
			}
		}
	}
	r.out.MaxIterations = true
	r.out.Text = fmt.Sprintf("Task incomplete: Maximum iterations (%d) reached.", limit)
	return r.out, emit(event.Warning{Reason: ReasonMaxIterations, Message: r.out.Text})
}

// run is one run under way.
type run struct {
	loop   Loop
	in     Input
	emit   func(event.Event) error
	out    Outcome
	number int // of the last model call or tool call
}

// ask calls the model once and returns its message.
func (r *run) ask(ctx context.Context) (conversation.Message, error) {
	req := llm.Request{
		System:   r.in.System,
		Messages: slices.Concat(r.in.Messages, r.out.Messages),
		Choices:  r.in.Choices,
	}
	if len(r.in.Choices) == 0 {
		req.Tools = r.loop.Tools.Specs()
	}
	r.number++
	if answer, known, err := r.said(); known || err != nil {
		return answer, err
	}
	answer := conversation.Message{Role: conversation.RoleAssistant}
	usage := execution.Usage{ModelCalls: 1}
	started := time.Now()
	var failed error
	for delta, err := range r.loop.Model.Generate(ctx, req) {
		if err != nil {
			failed = err
			break
		}
		answer.Text += delta.Text
		answer.ToolCalls = append(answer.ToolCalls, delta.ToolCalls...)
		usage = usage.Add(delta.Usage)
		if delta.Text == "" {
			continue
		}
		if err := r.emit(event.TextDelta{Text: delta.Text}); err != nil {
			r.out.Usage = r.out.Usage.Add(usage)
			return answer, err
		}
	}
	r.out.Usage = r.out.Usage.Add(usage)
	if ctx.Err() != nil {
		return answer, stopped(ctx)
	}
	if failed != nil {
		return answer, failed
	}
	answer.ToolCalls = r.named(answer.ToolCalls)
	if len(answer.ToolCalls) > 0 { // without any it ends the step, whose commit keeps it
		r.record(execution.Entry{Number: r.number, Phase: execution.Done, Reply: answer, Usage: usage})
	}
	return answer, r.emit(event.ModelCall{
		Model:     r.loop.Model.Name(),
		Iteration: r.out.Iterations,
		ToolCalls: len(answer.ToolCalls),
		Usage:     usage,
		Duration:  time.Since(started),
	})
}

// named gives calls whose id is missing, or was used before in this step, one of their
// own: each tool message must find its call (CO-33).
func (r *run) named(calls []conversation.ToolCall) []conversation.ToolCall {
	used := map[string]bool{"": true}
	for _, m := range slices.Concat(r.in.Messages, r.out.Messages) {
		for _, c := range m.ToolCalls {
			used[c.ID] = true
		}
	}
	calls = slices.Clone(calls)
	for i := range calls {
		for n := 1; used[calls[i].ID]; n++ {
			calls[i].ID = fmt.Sprintf("call_%d", n)
		}
		used[calls[i].ID] = true
	}
	return calls
}

// stopped says why ctx ended.
func stopped(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return failure.New(failure.AgentTimeout, "loop.Run",
			"the agent took longer than it may; raise its limits.timeout, or ask for less").Because(context.Cause(ctx))
	}
	return failure.New(failure.UserCancelled, "loop.Run", "the step was cancelled").Because(context.Cause(ctx))
}
