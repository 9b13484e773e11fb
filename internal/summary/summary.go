// Package summary lets a model write the summary of an automatic compaction, and selects what it reads (LP-26). The
// mesh and programs that run sessions of their own share it.
package summary

import (
	"context"
	"strings"

	"github.com/troupe-dev/troupe/internal/sidecall"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// maxRead is how many bytes of messages a model reads for one summary. A longer session is compacted in parts, one
// after each of its turns.
const maxRead = 256 << 10

// Select returns what a model reads: the oldest messages, of which a compaction removes the given number, and the
// sequence of the last one. With Hierarchical, they are the summaries of groups of ten messages. It returns nothing if
// there is nothing to remove.
func Select(messages []conversation.Message, remove int64, strategy conversation.Strategy) (read []conversation.Message, upTo int64) {
	n := countOldest(messages, remove)
	if n == 0 {
		return nil, 0
	}
	read, upTo = messages[:n], messages[n-1].Sequence
	if strategy != conversation.Hierarchical {
		return read, upTo
	}
	groups := conversation.Compact(append(read[:n:n], conversation.Message{}), conversation.Hierarchical, 1, "", maxRead)
	return []conversation.Message{{Role: conversation.RoleSummary, Text: groups.Summary}}, upTo
}

// countOldest counts an earlier summary and at most remove messages after it, of at most maxRead bytes, but at least
// one message.
func countOldest(messages []conversation.Message, remove int64) int {
	n, bytes := 0, 0
	for _, m := range messages {
		bytes += conversation.Size(m)
		isFirst := n == 0 || n == 1 && messages[0].Role == conversation.RoleSummary
		if remove <= 0 || bytes > maxRead && !isFirst {
			break
		}
		if n++; m.Role != conversation.RoleSummary {
			remove--
		}
	}
	return n
}

// Write lets a model write a summary of messages, outside of any turn. It reads at most sidecall.MaxSummaryText of each
// message. The summary has at most limit bytes and is not empty. Modes: agent_state without a model, resource_api if the summary is empty, and the
// modes of the model.
func Write(ctx context.Context, model llm.Model, messages []conversation.Message, limit int) (string, execution.Usage, error) {
	const op = "summary.Write"
	if model == nil {
		return "", execution.Usage{}, failure.New(failure.AgentState, op, "the agent has no model that could write a summary")
	}
	used := execution.Usage{ModelCalls: 1}
	req, err := sidecall.NewRequest(sidecall.SummaryInstruction, sidecall.Messages(messages, sidecall.MaxSummaryText))
	if err != nil {
		return "", used, failure.FromCause(ctx, err)
	}
	var text strings.Builder
	for delta, err := range model.Generate(ctx, req) {
		if err != nil {
			return "", used, failure.FromCause(ctx, err)
		}
		used = used.Add(delta.Usage)
		text.WriteString(delta.Text)
	}
	said := conversation.Truncate(strings.TrimSpace(text.String()), limit)
	if said == "" {
		return "", used, failure.New(failure.ResourceAPI, op, "the model wrote an empty summary")
	}
	return said, used, nil
}
