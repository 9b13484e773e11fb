package conversation

import (
	"fmt"
	"strings"
)

// Strategy is a way to make a conversation shorter (LP-26).
type Strategy string

// The strategies.
const (
	SlidingWindow Strategy = "sliding_window" // the oldest messages go; the summary says how many
	Summarize     Strategy = "summary"        // they become one summary
	Hierarchical  Strategy = "hierarchical"   // they become one summary of the summaries of ten each
)

// Compaction is what became of the oldest messages of a conversation.
type Compaction struct {
	First       int64 // sequence of the first message that went; 0: there was nothing to do
	Last        int64
	Messages    int64
	TokensSaved int64 // about how many the conversation has less
	Summary     string
}

// groupSize is how many messages one summary of Hierarchical is made of.
const groupSize = 10

// excerpt is how many characters of a message a summary by rule quotes.
const excerpt = 160

// Compact says what to do to keep about the given number of messages: which go, and what
// stands for them, of at most limit bytes. More stay where a tool call would be parted from
// its result. Given is the summary of someone who knows better, a model; without it one is
// made by rule: who said what, in brief, and of long conversations the end. A summary of
// before, which has RoleSummary, goes on in one by rule, but with SlidingWindow. A summary of
// untrusted words says where they come from, so that it is untrusted itself (S14).
func Compact(messages []Message, strategy Strategy, keep int, given string, limit int) Compaction {
	cut := opening(messages, max(0, len(messages)-max(keep, 1)))
	gone := messages[:cut]
	source := Untrusted(gone)
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

// head begins a summary by rule, so that the next one knows it again.
const head = "Messages up to "

func summarize(before string, gone []Message, strategy Strategy, limit int) string {
	head := fmt.Sprintf(head+"%d are left out.", gone[len(gone)-1].Sequence)
	if strategy == SlidingWindow {
		return head
	}
	lines := told(before)
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

// told are the lines of a summary, without what the next one says itself.
func told(summary string) []string {
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

// group is one line about some messages: what began and what ended them.
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

// said is what a summary tells of one message; of tools nothing, the answers rest on them.
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
