package execute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/troupe-dev/troupe/internal/loop/nested"
	"github.com/troupe-dev/troupe/internal/loop/toolcall"
	"github.com/troupe-dev/troupe/internal/loop/toolprogress"
	"github.com/troupe-dev/troupe/internal/spans"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Run calls the tool of a ready call. For a nested call that is already in the journal, it applies the recorded
// result. It ignores calls in any other state. Run may be called concurrently for several calls.
func (e *Executor) Run(ctx context.Context, c *toolcall.Call) {
	switch c.State {
	case toolcall.Ready:
	case toolcall.Replayed:
		if c.Nested != nil {
			c.Tool.(nested.Tool).Skip(ctx, c.Nested)
		}
		return
	default:
		return
	}
	c.State, c.JournalEntry.Phase = toolcall.Executed, execution.Done
	if c.Tool == nil {
		e.reportMissing(c)
		return
	}
	ctx, release := e.Stop.ContextWithStop(ctx)
	defer release()
	if c.IdempotencyKey != "" {
		ctx = tool.ContextWithIdempotencyKey(ctx, c.IdempotencyKey)
	}
	ctx = toolprogress.ContextWithReporter(tool.ContextWithQuoteHandler(c.ContextWithHolder(ctx), c.NoteUntrustedSource))
	ctx, leave := e.Control.EnterTool(ctx, c.Requested.ID, c.Memory)
	defer leave()
	result, err := e.callTool(ctx, c)
	if c.Nested != nil && c.Nested.Recorded != nil && stepjournal.IsUnrecorded(err) {
		c.RestoreFrom(*c.Nested.Recorded)
		return
	}
	if err == nil && len(result.Attachments) > 0 {
		result.Attachments, err = storeFiles(ctx, c, result.Attachments)
	}
	setResult(ctx, c, result, err)
}

// callTool calls the tool in a tracing span. It converts a panic of the tool to an error, because one bad tool
// must not end the other steps of the process.
func (e *Executor) callTool(ctx context.Context, c *toolcall.Call) (result tool.Result, err error) {
	ctx, span := spans.Start(ctx, "execute_tool "+c.HookCall.Name,
		attribute.String("gen_ai.operation.name", "execute_tool"), attribute.String("gen_ai.tool.name", c.HookCall.Name),
		attribute.String("gen_ai.tool.call.id", c.HookCall.ID))
	started := time.Now()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the tool panicked: %v", p)
		}
		c.HookCall.Duration = time.Since(started)
		span(err)
	}()
	ctx, args := nested.ContextWithCall(ctx, c.Nested), json.RawMessage(c.HookCall.Arguments)
	if c.Nested == nil {
		result, err = c.Tool.Call(ctx, args)
		if isFatal(err) {
			c.FatalErr = err
		}
		return result, err
	}
	result, err = c.Tool.(nested.Tool).CallIn(ctx, args, c.Nested)
	if failure.IsSuperseded(err) || isFatal(err) || err != nil && e.Budget.Rejection() != nil {
		c.FatalErr = err
	}
	if err == nil && c.Nested.Stopped == "" && len(c.Nested.Pending) > 0 { // a stop takes precedence over waiting calls
		c.State, c.Pending = toolcall.Waiting, c.Nested.Pending
	}
	return result, err
}

// isFatal reports whether the tool says that its process must not continue (LC-39).
func isFatal(err error) bool {
	e, ok := errors.AsType[*failure.Error](err)
	return ok && e.IsFatal()
}

// setResult stores the outcome of a tool call that ran with ctx.
func setResult(ctx context.Context, c *toolcall.Call, result tool.Result, err error) {
	h := c.HookCall
	h.Status, h.Text = event.ToolSuccess, strings.ToValidUTF8(result.Text, "�")
	if name, ok := tool.RejectedLogin(err); ok {
		execution.WithdrawCredential(ctx, name)
	}
	question, asks := tool.Question(err)
	switch {
	case asks:
		h.Status, h.Text = event.ToolAsked, strings.ToValidUTF8(question, "�")
	case err != nil && ctx.Err() != nil:
		h.Status, h.Text, h.Err = event.ToolInterrupted, toolcall.Interrupted, err
	case err != nil:
		h.Status, h.Text, h.Err = event.ToolError, toolcall.FailedPrefix+strings.ToValidUTF8(failure.PlainMessage(err), "�"), err
	default:
		c.Output = tool.Result{Attachments: result.Attachments, Structured: boundedJSON(result.Structured)}
	}
}

// reportMissing sets a result which tells the model that the tool does not exist, or that the step may not use it.
func (e *Executor) reportMissing(c *toolcall.Call) {
	allowed := "there are none"
	if names := e.AllowedTools.Names(); len(names) > 0 {
		allowed = "there are " + strings.Join(names, ", ")
	}
	c.HookCall.Status, c.HookCall.Text = event.ToolNotFound, fmt.Sprintf("There is no tool %q; %s.", c.HookCall.Name, allowed)
	if _, exists := e.AllTools.Find(c.HookCall.Name); exists {
		c.HookCall.Err = failure.Newf(failure.PolicyAllowlist, "loop.Run", "The tool %q may not be used in this step; %s.", c.HookCall.Name, allowed)
		c.HookCall.Text = failure.PlainMessage(c.HookCall.Err)
	}
}
