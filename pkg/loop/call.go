package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// noOutput is what a model reads when a tool has nothing to tell: providers refuse empty
// messages.
const noOutput = "(no output)"

// work is one tool call on its way.
type work struct {
	r     *run
	call  *hook.Call
	tool  tool.Tool // nil: there is none
	entry execution.Entry
	key   string // idempotency key
	quiet bool   // it was told in an attempt before this one
	done  bool   // it does not run: a handler or the journal has its result
}

// prepare brings a call to where its tool can run. It is nil when a handler stopped the turn.
func (r *run) prepare(ctx context.Context, c conversation.ToolCall) (*work, error) {
	if strings.TrimSpace(c.Arguments) == "" {
		c.Arguments = "{}"
	}
	r.number++
	w := &work{r: r, call: &hook.Call{Turn: r.turn, ID: c.ID, Name: c.Name, Arguments: c.Arguments}}
	if r.in.Key != nil {
		w.key = r.in.Key(r.number)
	}
	w.tool, _ = r.loop.Tools.Find(c.Name)
	_, w.call.Replayed = r.replay(r.number, execution.Done)
	if w.tool != nil {
		w.call.Description, w.call.Effect = w.tool.Spec().Description, tool.EffectOf(w.tool)
		if err := r.before(ctx, w, c); err != nil {
			return nil, err
		}
		if w.call.Status == "" && (r.Stopping() != "" || r.Ended()) {
			return nil, nil
		}
	}
	w.entry = execution.Entry{Number: r.number, Tool: c.Name, Digest: execution.CallDigest(c.Name, w.call.Arguments), Effect: w.call.Effect}
	if err := r.recall(ctx, w); err != nil {
		return nil, err
	}
	if w.quiet {
		return w, nil
	}
	return w, r.Emit(event.ToolStarted{CallID: c.ID, Tool: c.Name, Arguments: w.call.Arguments})
}

// before runs the handlers in front of a tool; their error is the tool's (CO-36, CO-39a).
func (r *run) before(ctx context.Context, w *work, c conversation.ToolCall) error {
	r.Pend(&c)
	err := r.BeforeEachTool(ctx, w.call)
	r.Pend(nil)
	if err != nil {
		w.call.Refuse("Error: " + failure.Plain(err))
		w.call.Err = err
	}
	w.done = w.call.Status != ""
	return r.Heard()
}

// recall finds what the journal knows of a call, and makes sure that a successor will know
// as much.
func (r *run) recall(ctx context.Context, w *work) error {
	if w.done {
		return nil
	}
	done, known, err := r.did(w.entry)
	if err != nil {
		return err
	}
	switch {
	case known:
		w.call.Status, w.call.Text, w.done, w.quiet = done.status, done.text, true, true
	case r.inDoubt(w.entry):
		w.call.Status, w.call.Text, w.done = event.ToolUnknownOutcome, unknownOutcome(w.call.Name), true
		w.entry.Phase = execution.Done
	default:
		return r.intend(ctx, w.entry)
	}
	return nil
}

// run calls the tool. It may run beside that of another call.
func (w *work) run(ctx context.Context) {
	if w.done {
		return
	}
	w.entry.Phase = execution.Done
	if w.tool == nil {
		there := "there are none"
		if names := w.r.loop.Tools.Names(); len(names) > 0 {
			there = "there are " + strings.Join(names, ", ")
		}
		w.call.Status, w.call.Text = event.ToolNotFound, fmt.Sprintf("There is no tool %q; %s.", w.call.Name, there)
		return
	}
	ctx, free := w.r.interruptible(ctx)
	defer free()
	if w.key != "" {
		ctx = tool.Keyed(ctx, w.key)
	}
	ctx, leave := w.r.Enter(ctx, w.call.ID)
	defer leave()
	ctx, span := traced(ctx, "execute_tool "+w.call.Name)
	started := time.Now()
	result, err := contained(ctx, w.tool, json.RawMessage(w.call.Arguments))
	w.call.Duration = time.Since(started)
	span(err)

	w.call.Status, w.call.Text = event.ToolSuccess, strings.ToValidUTF8(result.Text, "�")
	question, asks := tool.Question(err)
	switch {
	case asks:
		w.call.Status, w.call.Text = event.ToolAsked, strings.ToValidUTF8(question, "�")
	case err != nil && errors.Is(context.Cause(ctx), errStop):
		w.call.Status, w.call.Text, w.call.Err = event.ToolInterrupted, "Interrupted: the turn was stopped while it ran.", err
	case err != nil:
		w.call.Status, w.call.Text, w.call.Err = event.ToolError, "Error: "+strings.ToValidUTF8(failure.Plain(err), "�"), err
	}
}

// finish tells how a call ended, answers it, and runs the handlers behind it (CO-32).
func (r *run) finish(ctx context.Context, w *work) error {
	c := w.call
	if w.entry.Phase == execution.Done && c.Status != event.ToolInterrupted {
		w.entry.Status, w.entry.Text = string(c.Status), cut(c.Text, MaxToolText)
		r.record(w.entry)
	}
	c.Text = cut(c.Text, MaxToolText)
	told := event.ToolFinished{
		CallID: c.ID, Tool: c.Name, Arguments: c.Arguments, Iteration: r.turn.Iteration(), Status: c.Status, Result: c.Text,
		Duration: c.Duration, Replayed: w.quiet,
	}
	if c.Err != nil {
		told.ErrorType = string(failure.ModeOf(c.Err))
	}
	if c.Status == event.ToolAsked {
		if r.question == "" {
			r.question = c.Text
		}
		c.Text = "The user was asked: " + c.Text
	}
	if c.Text == "" {
		c.Text = noOutput
	}
	told.Summary = conversation.Brief(c.Text, event.MaxSummary)
	r.Ran(c.Name)
	if err := r.Emit(told); err != nil {
		return err
	}
	r.Append(conversation.Message{Role: conversation.RoleTool, Text: c.Text, ToolCallID: c.ID})
	if failed(c.Status) {
		r.failures++
		if err := r.OnError(ctx, c); err != nil {
			return err
		}
	} else {
		r.failures = 0
	}
	if err := r.AfterEachTool(ctx, c); err != nil {
		return err
	}
	r.Amend(cut(c.Text, MaxToolText))
	return r.Told()
}

// contained turns a panic of the tool into its error: one bad tool must not take the
// other steps of the process with it.
func contained(ctx context.Context, t tool.Tool, args json.RawMessage) (result tool.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the tool panicked: %v", p)
		}
	}()
	return t.Call(ctx, args)
}

// cut shortens text to at most limit bytes, and says so.
func cut(text string, limit int) string {
	const mark = "… (cut)"
	if len(text) <= limit {
		return text
	}
	return conversation.Cut(text, limit-len(mark)) + mark
}
