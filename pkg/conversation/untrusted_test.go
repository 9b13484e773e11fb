package conversation_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

func TestUntrustedSource_ReturnsTheSourceOfAMessage(t *testing.T) {
	require.Empty(t, conversation.User("hello").UntrustedSource())
	require.Equal(t, "tool a", conversation.Message{Untrusted: "tool a"}.UntrustedSource())
	file := conversation.User("read it")
	file.Attachments = []conversation.Attachment{{Name: "a\n\xff b.pdf"}}
	require.Equal(t, "file a b.pdf", file.UntrustedSource())
	require.Equal(t, "file a b.pdf", conversation.UntrustedSource([]conversation.Message{conversation.User("hello"), file}))
	require.LessOrEqual(t, len(conversation.SourceName("file", strings.Repeat("ä", 500))), conversation.MaxSourceBytes)
}

func TestMostRestrictiveSource_PrefersTheFirstSourceThatIsNotAParty(t *testing.T) {
	sums, maps := conversation.PartyPrefix+"sums", conversation.PartyPrefix+"maps"
	for want, sources := range map[string][]string{
		"":       {"", ""},
		"tool a": {"", "tool a", "tool b", sums},
		"tool b": {sums, "", "tool b", maps},
		sums:     {sums, maps},
	} {
		require.Equal(t, want, conversation.MostRestrictiveSource(sources...))
		var messages []conversation.Message
		for _, source := range sources {
			messages = append(messages, conversation.Message{Untrusted: source})
		}
		require.Equal(t, want, conversation.UntrustedSource(messages))
	}
}

// MarkUntrusted marks a window with a source that the window no longer shows. It does not modify the messages of
// the caller.
func TestMarkUntrusted_MarksOneMessage(t *testing.T) {
	sums := conversation.PartyPrefix + "sums"
	for _, row := range []struct {
		source, first, second, want string
	}{
		{"", "", "", ""},
		{"tool a", "", "", "tool a"},
		{"tool a", "", "tool b", ""},
		{"tool a", "tool b", "", "tool b"},
		{"tool a", sums, "", "tool a"},
		{sums, "", sums, ""},
		{sums, "", "tool b", ""},
	} {
		window := []conversation.Message{{Text: "1", Untrusted: row.first}, {Text: "2", Untrusted: row.second}}
		marked := conversation.MarkUntrusted(row.source, window)
		require.Equal(t, row.want, marked[0].Untrusted, "%v", row)
		require.Equal(t, row.second, marked[1].Untrusted)
		require.Equal(t, row.first, window[0].Untrusted)
	}
	require.Empty(t, conversation.MarkUntrusted("tool a", nil))
	marked := conversation.MarkUntrusted(sums, []conversation.Message{{Untrusted: conversation.PartyPrefix + "mail"}, {Text: "2"}})
	require.Equal(t, []string{conversation.PartyPrefix + "mail", sums}, []string{marked[0].Untrusted, marked[1].Untrusted}, "no party hides another")
}

func TestReaderRole_UntrustedSystemMessageIsUser(t *testing.T) {
	m := conversation.Message{Role: conversation.RoleSystem, Text: "be kind"}
	require.Equal(t, conversation.RoleSystem, m.ReaderRole())
	m.Untrusted = "tool a"
	require.Equal(t, conversation.RoleUser, m.ReaderRole())
}

// A summary of untrusted text is marked. Neither its author nor its text can remove the mark, and summaries of
// summaries keep it. A summary of trusted text has no mark.
func TestCompact_MarksASummaryOfUntrustedText(t *testing.T) {
	for _, summary := range []string{"", "They talked.", "\n(Some of it comes from nowhere.)", strings.Repeat("long ", 100)} {
		for _, strategy := range []conversation.Strategy{conversation.SlidingWindow, conversation.Summarize, conversation.Hierarchical} {
			var all []conversation.Message
			for n := range 6 {
				m := conversation.Assistant("a", fmt.Sprint("word ", n))
				m.Sequence = int64(n + 1)
				all = append(all, m)
			}
			if summary == "" {
				trusted := conversation.Compact(all, strategy, 2, summary, 200)
				require.Empty(t, conversation.Message{Role: conversation.RoleSummary, Text: trusted.Summary}.UntrustedSource())
			}
			all[1].Untrusted = "tool http_fetch"
			for range 3 {
				done := conversation.Compact(all, strategy, 2, summary, 200)
				require.LessOrEqual(t, len(done.Summary), 200)
				first := conversation.Message{Role: conversation.RoleSummary, Text: done.Summary, Sequence: done.Last}
				require.Equal(t, "tool http_fetch", first.UntrustedSource(), done.Summary)
				all = []conversation.Message{first}
				for n := range 4 {
					m := conversation.Assistant("a", "more")
					m.Sequence = done.Last + int64(n) + 1
					all = append(all, m)
				}
			}
		}
	}
}
