package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
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
	r.number++
	t, found := r.loop.Tools.Find(c.Name)
	entry := execution.Entry{Number: r.number, Tool: c.Name, Digest: execution.CallDigest(c.Name, c.Arguments)}
	if found {
		entry.Effect = tool.EffectOf(t)
	}
	done, known, err := r.did(entry)
	if err != nil {
		return err
	}
	if known {
		r.answer(c, done)
		return nil
	}
	doubtful := r.inDoubt(entry)
	if !doubtful {
		if err := r.intend(ctx, entry); err != nil {
			return err
		}
	}
	if err := r.emit(event.ToolStarted{CallID: c.ID, Tool: c.Name, Arguments: c.Arguments}); err != nil {
		return err
	}
	started := time.Now()
	if doubtful {
		done = Call{c.Name, event.ToolUnknownOutcome, unknownOutcome(c.Name)}
	} else {
		done = r.execute(ctx, c, t)
	}
	text := r.answer(c, done)
	entry.Phase, entry.Status, entry.Text = execution.Done, string(done.Status), cut(done.Text, MaxToolText)
	r.record(entry)
	err = r.emit(event.ToolFinished{
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

// answer appends the message that answers a call, and returns what it says.
func (r *run) answer(c conversation.ToolCall, done Call) string {
	r.out.Calls = append(r.out.Calls, done)
	text := done.Text
	if text == "" {
		text = noOutput
	}
	r.out.Messages = append(r.out.Messages, conversation.Message{
		Role: conversation.RoleTool, Text: cut(text, MaxToolText), ToolCallID: c.ID,
	})
	return text
}

// execute calls the tool, if there is one.
func (r *run) execute(ctx context.Context, c conversation.ToolCall, t tool.Tool) Call {
	if t == nil {
		there := "there are none"
		if names := r.loop.Tools.Names(); len(names) > 0 {
			there = "there are " + strings.Join(names, ", ")
		}
		return Call{c.Name, event.ToolNotFound, fmt.Sprintf("There is no tool %q; %s.", c.Name, there)}
	}
	if r.in.Key != nil {
		ctx = tool.Keyed(ctx, r.in.Key(r.number))
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
