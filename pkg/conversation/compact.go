package conversation

import (
	"fmt"
	"strings"
)

// Strategy is a way to shorten a conversation (LP-26).
type Strategy string

// The strategies.
const (
	SlidingWindow Strategy = "sliding_window" // removes the oldest messages; the summary says how many
	Summarize     Strategy = "summary"        // replaces them by one summary
	Hierarchical  Strategy = "hierarchical"   // replaces them by one summary of summaries of ten messages each
)

// Compaction is the result of Compact.
type Compaction struct {
	First       int64 // sequence of the first removed message (0 if there was nothing to do)
	Last        int64
	Messages    int64
	TokensSaved int64 // estimate
	Summary     string
}

// groupSize is the number of messages of one summary of Hierarchical.
const groupSize = 10

// excerpt is the number of characters that a summary by rule quotes of a message.
const excerpt = 160

// Compact decides which messages to remove so that about keep messages stay, and returns their summary of at most limit
// bytes. More messages stay if a tool call would be separated from its result. given is a summary that a model made. If it
// is empty, a rule makes one: a short line for each message, from the end backwards as far as limit allows. An earlier
// summary, which has RoleSummary, is part of the new one, except with SlidingWindow. A summary of untrusted words names
// their source, so that it is untrusted itself (S14).
func Compact(messages []Message, strategy Strategy, keep int, given string, limit int) Compaction {
	cut := opening(messages, max(0, len(messages)-max(keep, 1)))
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
		c.TokensSaved += Tokens(m)
	}
	if c.Summary == "" {
		c.Summary = summarize(before, gone, strategy, limit)
	}
	c.Summary = mark(c.Summary, source, limit)
	c.TokensSaved = max(0, c.TokensSaved+Tokens(Message{Text: before})-Tokens(Message{Text: c.Summary}))
	return c
}

// head is the prefix of a summary by rule. The next summary recognizes it by this prefix.
const head = "Messages up to "

func summarize(before string, gone []Message, strategy Strategy, limit int) string {
	head := fmt.Sprintf(head+"%d are left out.", gone[len(gone)-1].Sequence)
	if strategy == SlidingWindow {
		return head
	}
	lines := summaryLines(before)
	if strategy == Hierarchical {
		for len(gone) > 0 {
			n := min(groupSize, len(gone))
			lines = append(lines, group(gone[:n]))
			gone = gone[n:]
		}
	} else {
		for _, m := range gone {
			lines = append(lines, said(m, excerpt)...)
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

// summaryLines returns the lines of an earlier summary without its head.
func summaryLines(summary string) []string {
	if first, rest, more := strings.Cut(summary, "\n"); strings.HasPrefix(first, head) {
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

// group returns one line about some messages, which quotes the first and the last one.
func group(messages []Message) string {
	var all []string
	for _, m := range messages {
		all = append(all, said(m, excerpt/2)...)
	}
	span := fmt.Sprintf("%d to %d: ", messages[0].Sequence, messages[len(messages)-1].Sequence)
	if len(all) > 2 {
		all = []string{all[0], all[len(all)-1]}
	}
	return span + strings.Join(all, " … ")
}

// said returns the line of a summary about one message. Tool results have none, because answers are based on them.
func said(m Message, characters int) []string {
	text := Brief(m.Text, characters)
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
