package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// noOutput is what a model reads when a tool has nothing to tell: providers refuse empty
// messages.
const noOutput = "(no output)"

// call runs one tool and appends its message. Its error ends the run; that of the tool
// does not.
func (r *run) call(ctx context.Context, c conversation.ToolCall) error {
	if strings.TrimSpace(c.Arguments) == "" {
		c.Arguments = "{}"
	}
	if err := r.emit(event.ToolStarted{CallID: c.ID, Tool: c.Name, Arguments: c.Arguments}); err != nil {
		return err
	}
	started := time.Now()
	done := r.execute(ctx, c)
	r.out.Calls = append(r.out.Calls, done)

	text := done.Text
	if text == "" {
		text = noOutput
	}
	r.out.Messages = append(r.out.Messages, conversation.Message{
		Role: conversation.RoleTool, Text: cut(text, MaxToolText), ToolCallID: c.ID,
	})
	err := r.emit(event.ToolFinished{
		CallID:   c.ID,
		Tool:     c.Name,
		Status:   done.Status,
		Summary:  conversation.Brief(text, event.MaxSummary),
		Duration: time.Since(started),
	})
	if err == nil && ctx.Err() != nil {
		return stopped(ctx)
	}
	return err
}

// execute finds the tool and calls it.
func (r *run) execute(ctx context.Context, c conversation.ToolCall) Call {
	t, ok := r.loop.Tools.Find(c.Name)
	if !ok {
		there := "there are none"
		if names := r.loop.Tools.Names(); len(names) > 0 {
			there = "there are " + strings.Join(names, ", ")
		}
		return Call{c.Name, event.ToolNotFound, fmt.Sprintf("There is no tool %q; %s.", c.Name, there)}
	}
	result, err := contained(ctx, t, json.RawMessage(c.Arguments))
	if err != nil {
		return Call{c.Name, event.ToolError, "Error: " + strings.ToValidUTF8(failure.Plain(err), "�")}
	}
	return Call{c.Name, event.ToolSuccess, strings.ToValidUTF8(result.Text, "�")}
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
