package loop

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/troupe-dev/troupe/internal/loop/nested"
	"github.com/troupe-dev/troupe/internal/loop/toolprogress"
	"github.com/troupe-dev/troupe/internal/spans"
	"github.com/troupe-dev/troupe/internal/stepjournal"
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

// failedText begins what a model reads of a tool that failed.
const failedText = "Error: "

// interrupted is what a model reads of a tool that a stop cut off.
const interrupted = "Interrupted: the turn was stopped while it ran."

// work is one tool call on its way.
type work struct {
	r      *run
	asked  conversation.ToolCall // by the model; what the call is known by
	call   *hook.Call
	tool   tool.Tool // nil: there is none
	entry  execution.Entry
	key    string           // idempotency key
	quiet  bool             // it was told in an attempt before this one
	done   bool             // it does not run: a handler or the journal has its result
	memory *hook.Memory     // that the tool sees; its changes count when it succeeded (CO-39c)
	left   trail            // of the journal: what the tool did beside giving a result
	known  *execution.Entry // of a replay: how a Nested, which is called all the same, ended then
	nest   *nested.Call     // of a Nested; nil: it is none
	lost   error            // of a Nested: why the step cannot go on

	id      string              // for who answers, if it waits
	schema  *tool.Schema        // of a tool that the client runs
	answer  execution.Answer    // that the turn brought; the zero Answer: none
	decided bool                // by the answer, and by no handler
	unread  error               // why the credential of the answer is not there
	pending []execution.Pending // what it waits for: itself, or calls of an agent that is a tool

	quoting sync.Mutex // guards what left says of untrusted words: a tool may have goroutines
}

// prepare numbers a call and runs the handlers before it. It is nil when the turn was stopped
// meanwhile. Then recall is due.
func (r *run) prepare(ctx context.Context, c conversation.ToolCall) (*work, error) {
	if strings.TrimSpace(c.Arguments) == "" {
		c.Arguments = "{}"
	}
	r.number++
	w := &work{r: r, asked: c, call: &hook.Call{Turn: r.turn, ID: c.ID, Name: c.Name, Arguments: c.Arguments}}
	w.entry = execution.Entry{Number: r.number, Tool: c.Name}
	if r.in.Key != nil {
		w.key = r.in.Key(r.number)
	}
	w.tool, _ = r.tools.Find(c.Name)
	_, w.call.Replayed = r.replay(r.number, execution.Done)
	if w.tool != nil {
		if err := r.decide(ctx, w); err != nil {
			return nil, err
		}
		if (w.call.Status == "" || w.waits()) && (r.stopping() || r.Progress.Ended()) {
			return nil, nil
		}
	}
	w.entry.Digest = stepjournal.CallDigest(c.Name, w.call.Arguments)
	if r.in.Recorded {
		w.entry.Arguments = w.call.Arguments
	}
	r.allow(w)
	return w, nil
}

// decide finds out whether a tool that there is runs, waits, or does neither.
func (r *run) decide(ctx context.Context, w *work) error {
	w.call.Description, w.call.Effect = w.tool.Spec().Description, tool.EffectOf(w.tool)
	w.entry.Effect, w.id = w.call.Effect, r.id(w.entry.Number)
	if _, ok := w.tool.(nested.Tool); ok {
		w.nest = &nested.Call{Lanes: 1}
	}
	w.schema, w.call.AtClient = tool.AtClient(w.tool)
	w.call.Replayed = w.call.Replayed || r.inDoubt(w)
	r.expect(w)
	ctx = w.holding(ctx)
	r.open(ctx, w)
	w.call.Untrusted = r.against(w)
	if err := r.before(ctx, w); err != nil {
		return err
	}
	if err := r.guard(w); err != nil {
		return err
	}
	if err := r.heed(w); err != nil {
		return err
	}
	if a := w.answer; a.Verdict == execution.Stop && !a.Late && !w.decided {
		r.stopAll(ctx, r.Progress.StopReason())
	}
	r.login(ctx, w)
	if err := r.hold(w); err != nil {
		return err
	}
	w.done = w.call.Status != "" && !w.waits()
	return nil
}

// begin tells that a call is on its way.
func (r *run) begin(w *work) error {
	if w.quiet || w.waits() {
		return nil
	}
	return r.Events.Emit(event.ToolStarted{CallID: w.asked.ID, Tool: w.asked.Name, Arguments: w.call.Arguments})
}

// before runs the handlers in front of a tool; their error is the tool's (CO-36, CO-39a).
func (r *run) before(ctx context.Context, w *work) error {
	c := w.asked
	r.Conversation.SetPending(&c)
	err := r.patiently(ctx, func(ctx context.Context) error { return r.Handlers.BeforeEachTool(ctx, w.call) })
	r.Conversation.SetPending(nil)
	if late(err) != nil {
		w.call.Refuse(failedText + failure.Plain(err))
		w.call.Err = err
	}
	return r.Events.Err()
}

// recall finds what the journal knows of a call, and makes sure that a successor will know
// as much.
func (r *run) recall(ctx context.Context, w *work) error {
	w.memory = r.turn.Memory().Fork(r.turn.Info().Agent)
	if w.done {
		return nil
	}
	done, known, err := r.did(w.entry)
	if err != nil {
		return err
	}
	if s := r.sealed(); s != nil && known {
		s.Asked(w.entry.Number, w.entry.Digest)
		if event.ToolStatus(done.Status) == event.ToolNotFound && w.tool != nil {
			return s.Stray(w.entry)
		}
	}
	switch {
	case r.sealed() != nil && (w.nest != nil || w.tool == nil): // it ends anew, without harm
		if known && w.nest != nil {
			w.known = &done
		}
	case known:
		w.ended(done)
	case r.inDoubt(w):
		w.call.Status, w.call.Text, w.done = event.ToolUnknownOutcome, unknownOutcome(w.call.Name), true
		w.entry.Phase = execution.Done
	case w.waits():
	case r.sealed() != nil:
		return r.stray(w.entry, nil)
	default:
		return r.intend(ctx, w.entry, w.nest != nil)
	}
	return nil
}

// ended has a call end as the journal says.
func (w *work) ended(as execution.Entry) {
	w.call.Status, w.call.Text, w.done, w.quiet = event.ToolStatus(as.Status), as.Text, true, true
	w.entry.Mode = as.Mode
	w.remember(as)
}

// run calls the tool. It may run beside that of another call.
func (w *work) run(ctx context.Context) {
	if w.waits() {
		return
	}
	if w.done {
		if w.quiet && w.nest != nil {
			w.tool.(nested.Tool).Skip(ctx, w.nest)
		}
		return
	}
	w.entry.Phase = execution.Done
	if w.tool == nil {
		w.missing()
		return
	}
	ctx, free := w.r.interruptible(ctx)
	defer free()
	if w.key != "" {
		ctx = tool.Keyed(ctx, w.key)
	}
	ctx = tool.Quoting(w.holding(ctx), w.quotes)
	ctx = toolprogress.WithReports(ctx)
	ctx, leave := w.r.EnterTool(ctx, w.asked.ID, w.memory)
	defer leave()
	ctx, span := spans.Start(ctx, "execute_tool "+w.call.Name,
		attribute.String("gen_ai.operation.name", "execute_tool"), attribute.String("gen_ai.tool.name",
			w.call.Name), attribute.String("gen_ai.tool.call.id", w.call.ID))
	started := time.Now()
	result, err := contained(func() (tool.Result, error) { return w.do(ctx, json.RawMessage(w.call.Arguments)) })
	w.call.Duration = time.Since(started)
	span(err)
	if w.known != nil && stepjournal.IsUnrecorded(err) {
		w.ended(*w.known)
		return
	}

	w.call.Status, w.call.Text = event.ToolSuccess, strings.ToValidUTF8(result.Text, "�")
	if name, ok := tool.Rejected(err); ok {
		execution.WithdrawCredential(ctx, name)
	}
	question, asks := tool.Question(err)
	switch {
	case asks:
		w.call.Status, w.call.Text = event.ToolAsked, strings.ToValidUTF8(question, "�")
	case err != nil && ctx.Err() != nil:
		w.call.Status, w.call.Text, w.call.Err = event.ToolInterrupted, interrupted, err
	case err != nil:
		w.call.Status, w.call.Text, w.call.Err = event.ToolError, failedText+strings.ToValidUTF8(failure.Plain(err), "�"), err
	}
}

// missing tells the model that there is no such tool, or that the step may not use it.
func (w *work) missing() {
	there := "there are none"
	if names := w.r.tools.Names(); len(names) > 0 {
		there = "there are " + strings.Join(names, ", ")
	}
	w.call.Status, w.call.Text = event.ToolNotFound, fmt.Sprintf("There is no tool %q; %s.", w.call.Name, there)
	if _, kept := w.r.loop.Tools.Find(w.call.Name); kept {
		w.call.Err = failure.Newf(failure.PolicyAllowlist, "loop.Run", "The tool %q may not be used in this step; %s.", w.call.Name, there)
		w.call.Text = failure.Plain(w.call.Err)
	}
}

// do calls the tool.
func (w *work) do(ctx context.Context, args json.RawMessage) (tool.Result, error) {
	ctx = nested.WithCall(ctx, w.nest)
	if w.nest == nil {
		return w.tool.Call(ctx, args)
	}
	result, err := w.tool.(nested.Tool).CallIn(ctx, args, w.nest)
	if failure.IsSuperseded(err) || err != nil && w.r.in.Budget.Refusal() != nil {
		w.lost = err
	}
	if err == nil && w.nest.Stopped == "" { // a stop is stronger than what waits
		w.pending = w.nest.Pending
	}
	return result, err
}

// finish tells how a call ended, answers it, and runs the handlers behind it (CO-32).
func (r *run) finish(ctx context.Context, w *work) error {
	if w.lost != nil {
		return w.lost
	}
	r.take(ctx, w)
	if err := r.note(w, r.TakeUnjournaled); err != nil {
		return err
	}
	if err := r.report(w); err != nil {
		return err
	}
	r.Conversation.Append(conversation.Message{Role: conversation.RoleTool, Text: w.call.Text, ToolCallID: w.asked.ID, Untrusted: w.source()})
	err := late(r.behind(ctx, w.call))
	r.Conversation.SetLastText(cut(w.call.Text, MaxToolText))
	return cmp.Or(err, r.EmitLast())
}

// note puts into the journal how a call ended, if it is not there yet.
func (r *run) note(w *work, changes func() (map[string]json.RawMessage, []string)) error {
	c := w.call
	text := cut(c.Text, MaxToolText)
	if r.in.Journal != nil && w.entry.Phase == execution.Done && (c.Status != event.ToolInterrupted || w.decided) {
		w.entry.Status, w.entry.Text, w.entry.Mode = string(c.Status), text, modeOf(c.Err)
		set, removed := changes()
		if err := r.keep(w, set, removed); err != nil {
			return err
		}
		r.record(w.entry)
	}
	c.Text = text
	return nil
}

// report tells how a call ended, and leaves what the model is to read of it.
func (r *run) report(w *work) error {
	c := w.call
	told := event.ToolFinished{
		CallID: w.asked.ID, Tool: w.asked.Name, Arguments: c.Arguments, Iteration: r.turn.Iteration(), Status: c.Status, Result: c.Text,
		Duration: c.Duration, Replayed: w.quiet,
	}
	if failed(c.Status) && c.Err == nil { // there is no such tool, a handler refused it, or it failed in an attempt before
		c.Err = errors.New(strings.TrimPrefix(c.Text, failedText))
		if w.entry.Mode != "" {
			c.Err = failure.New(failure.Mode(w.entry.Mode), "loop.Run", strings.TrimPrefix(c.Text, failedText))
		}
	}
	told.ErrorType = modeOf(c.Err)
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
	r.Progress.ToolRan(w.asked.Name)
	return r.Events.Emit(told)
}

// behind runs the handlers behind a tool.
func (r *run) behind(ctx context.Context, c *hook.Call) error {
	switch {
	case failed(c.Status):
		if !c.Replayed { // what failed before is why there is this attempt, and does not end it, too
			r.failures++
		}
		if err := r.Handlers.OnError(ctx, c); err != nil {
			return err
		}
	case c.Status == event.ToolSuccess:
		r.failures = 0
	}
	return r.Handlers.AfterEachTool(ctx, c)
}

// modeOf is the mode of a failure, or empty.
func modeOf(err error) string {
	if err == nil {
		return ""
	}
	return string(failure.ModeOf(err))
}

// contained turns a panic of the tool into its error: one bad tool must not take the
// other steps of the process with it.
func contained(call func() (tool.Result, error)) (result tool.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the tool panicked: %v", p)
		}
	}()
	return call()
}

// cut shortens text to at most limit bytes, and says so.
func cut(text string, limit int) string {
	const mark = "… (cut)"
	if len(text) <= limit {
		return text
	}
	return conversation.Cut(text, limit-len(mark)) + mark
}
