package conversation

import (
	"fmt"
	"strings"
)

// Strategy selects how Compact shortens a conversation (LP-26).
type Strategy string

// The strategies.
const (
	SlidingWindow Strategy = "sliding_window" // removes the oldest messages; the summary says how many
	Summarize     Strategy = "summary"        // replaces the oldest messages by one summary
	Hierarchical  Strategy = "hierarchical"   // replaces the oldest messages by a summary of summaries of ten messages each
)

// Compaction says which messages to remove, and holds the summary that replaces them.
type Compaction struct {
	First       int64 // sequence of the first removed message (0 if there was nothing to do)
	Last        int64
	Messages    int64
	TokensSaved int64 // estimated number of tokens
	Summary     string
}

// messagesPerGroup is the number of messages in one line of a Hierarchical summary.
const messagesPerGroup = 10

// maxExcerptChars is the maximum number of characters that the default summary quotes of a message.
const maxExcerptChars = 160

// Compact decides which messages to remove so that about keep messages stay. It returns a summary of the removed
// ones, of at most limit bytes. More messages stay if a tool call would be separated from its result.
//
// A model may have written the summary in given. If given is empty, Compact writes one itself, with a short line
// for each message. It begins with the latest message and stops at limit. An earlier summary, which has
// RoleSummary, becomes part of the new one, except with SlidingWindow. If the removed messages have untrusted
// words, the summary names their source and so counts as untrusted too (guarantee S14).
func Compact(messages []Message, strategy Strategy, keep int, given string, limit int) Compaction {
	cut := roundStart(messages, max(0, len(messages)-max(keep, 1)))
	gone := messages[:cut]
	source := UntrustedSource(gone)
	var before string
	if len(gone) > 0 && gone[0].Role == RoleSummary {
		before, gone = gone[0].Text, gone[1:]
	}
	if len(gone) == 0 {
		return Compaction{}
	}
	c := Compaction{First: gone[0].Sequence, Last: gone[len(gone)-1].Sequence, Messages: int64(len(gone)), Summary: given}
	for _, m := range gone {
		c.TokensSaved += EstimateTokens(m)
	}
	if c.Summary == "" {
		c.Summary = summarize(before, gone, strategy, limit)
	}
	c.Summary = appendSourceMark(c.Summary, source, limit)
	c.TokensSaved = max(0, c.TokensSaved+EstimateTokens(Message{Text: before})-EstimateTokens(Message{Text: c.Summary}))
	return c
}

// summaryPrefix is the beginning of each default summary. Compact uses it to recognize the default summary of an
// earlier compaction.
const summaryPrefix = "Messages up to "

func summarize(before string, gone []Message, strategy Strategy, limit int) string {
	head := fmt.Sprintf(summaryPrefix+"%d are left out.", gone[len(gone)-1].Sequence)
	if strategy == SlidingWindow {
		return head
	}
	lines := summaryLines(before)
	if strategy == Hierarchical {
		for len(gone) > 0 {
			n := min(messagesPerGroup, len(gone))
			lines = append(lines, groupLine(gone[:n]))
			gone = gone[n:]
		}
	} else {
		for _, m := range gone {
			lines = append(lines, messageLines(m, maxExcerptChars)...)
		}
	}
	size := len(head)
	from := len(lines)
	for from > 0 && size+1+len(lines[from-1]) <= limit {
		from--
		size += 1 + len(lines[from])
	}
	return strings.Join(append([]string{head}, lines[from:]...), "\n")
}

// summaryLines returns the lines of an earlier summary, except its first line.
func summaryLines(summary string) []string {
	if first, rest, more := strings.Cut(summary, "\n"); strings.HasPrefix(first, summaryPrefix) {
		if !more {
			return nil
		}
		summary = rest
	}
	if summary == "" {
		return nil
	}
	return strings.Split(summary, "\n")
}

// groupLine returns one summary line for a group of messages. It quotes the first and the last message.
func groupLine(messages []Message) string {
	var all []string
	for _, m := range messages {
		all = append(all, messageLines(m, maxExcerptChars/2)...)
	}
	span := fmt.Sprintf("%d to %d: ", messages[0].Sequence, messages[len(messages)-1].Sequence)
	if len(all) > 2 {
		all = []string{all[0], all[len(all)-1]}
	}
	return span + strings.Join(all, " … ")
}

// messageLines returns the summary line for one message. It returns none for a tool result, because the answers
// already use it.
func messageLines(m Message, characters int) []string {
	text := Excerpt(m.Text, characters)
	switch {
	case text == "" || m.Role == RoleTool:
		return nil
	case m.Role == RoleUser:
		return []string{"User: " + text}
	case m.Author != "":
		return []string{m.Author + ": " + text}
	default:
		return []string{"AI: " + text}
	}
}
