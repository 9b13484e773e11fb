// Package compaction makes room in the context of a model during a turn. When the context is nearly full, a
// summary replaces the oldest messages of the turn (CO-64). The stored session does not change, because the memory
// service compacts it between turns.
package compaction

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/troupe-dev/troupe/internal/sidecall"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// Name is the name of the plugin. The others are the reasons of its warnings.
const (
	Name = "compaction"

	ReasonCompacted     = "CONTEXT_COMPACTED"      // a summary replaced messages
	ReasonSummaryFailed = "CONTEXT_SUMMARY_FAILED" // the model wrote no summary, so a default summary was used
)

// The defaults of a Config.
const (
	DefaultAbove   = 90
	DefaultAtLeast = 8
	DefaultKeep    = 5
)

// maxSummary is the maximum length of a summary in bytes.
const maxSummary = 8 << 10

// Config holds the settings of the plugin.
type Config struct {
	Above   float64 // fill level that starts a compaction, in per cent of the model's context, up to 100 (0 means DefaultAbove)
	AtLeast int     // minimum number of messages for a compaction (0 means DefaultAtLeast)
	Keep    int     // number of messages that stay, less than AtLeast (0 means DefaultKeep)
}

// New returns the plugin that c describes. Modes: agent_validation.
func New(c Config) (hook.Plugin, error) {
	c.Above = cmp.Or(c.Above, DefaultAbove)
	c.AtLeast, c.Keep = cmp.Or(c.AtLeast, DefaultAtLeast), cmp.Or(c.Keep, DefaultKeep)
	wrong := func(format string, args ...any) (hook.Plugin, error) {
		return hook.Plugin{}, failure.Newf(failure.AgentValidation, "compaction.New", format, args...)
	}
	switch {
	case !(c.Above > 0 && c.Above <= 100):
		return wrong("Above is %v; use a percentage above 0 and up to 100", c.Above)
	case c.Keep < 1:
		return wrong("Keep is %d; use 1 or more messages", c.Keep)
	case c.AtLeast <= c.Keep:
		return wrong("AtLeast is %d; use more than the %d messages that stay", c.AtLeast, c.Keep)
	}
	return hook.Plugin{Name: Name, Handlers: []hook.Handler{hook.AfterLLM(c.compact)}}, nil
}

// compact replaces the oldest messages by a summary if the context is nearly full. It does nothing after an answer
// without tool calls, because the messages are not sent again.
func (c Config) compact(ctx context.Context, reply *hook.LLMReply) error {
	messages := reply.Messages()
	if len(reply.ToolCalls) == 0 || reply.ContextPercent() < c.Above || len(messages) < c.AtLeast {
		return nil
	}
	done := conversation.Compact(withSequences(messages), conversation.Summarize, c.Keep, "", maxSummary)
	if done.Messages == 0 {
		return nil // all messages belong to one tool round, which is never split
	}
	cut := int(done.Messages)
	if messages[0].Role == conversation.RoleSummary {
		cut++
	}
	summary, err := sidecall.Ask(ctx, reply.Turn, sidecall.SummaryInstruction, sidecall.Messages(messages[:cut], sidecall.MaxSummaryText))
	switch {
	case errors.Is(err, sidecall.ErrModel):
		summary = done.Summary
		reply.Warn(ReasonSummaryFailed, "the model wrote no summary of the conversation so far; a default summary takes its place")
	case err != nil:
		return err
	}
	kept := []conversation.Message{{
		Role: conversation.RoleSummary, Text: conversation.Truncate(summary, maxSummary),
		Untrusted: conversation.UntrustedSource(messages[:cut]),
	}}
	if i := lastRequest(messages); i >= 0 && i < cut {
		request := messages[i]
		request.Text = conversation.Truncate(request.Text, maxSummary)
		kept = append(kept, request)
	}
	if err := reply.Replace(append(kept, messages[cut:]...)); err != nil {
		return err
	}
	reply.Warn(ReasonCompacted, "the context of the model was nearly full; the oldest messages of the turn became a summary")
	return nil
}

// lastRequest returns the index of the user's last message (-1 if there is none).
func lastRequest(messages []conversation.Message) int {
	for i, m := range slices.Backward(messages) {
		if m.Role == conversation.RoleUser && m.Author == "" {
			return i
		}
	}
	return -1
}

// withSequences returns the messages with a sequence for each. Messages of the current turn have none, because
// they are not stored yet.
func withSequences(messages []conversation.Message) []conversation.Message {
	messages = slices.Clone(messages)
	last := int64(0)
	for i := range messages {
		if messages[i].Sequence == 0 {
			messages[i].Sequence = last + 1
		}
		last = messages[i].Sequence
	}
	return messages
}
