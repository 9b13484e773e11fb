package memory

import (
	"cmp"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// PartialMessage returns what a step had said when its turn failed, by its journal (LP-17): the texts of
// its model replies, separated by blank lines and cut at MaxMessageBytes, by the author of the last one.
// It returns false if the step had said nothing.
func PartialMessage(journal []execution.Entry) (conversation.Message, bool) {
	var texts []string
	said := conversation.Message{Role: conversation.RoleAssistant, Partial: true}
	for _, e := range journal {
		if e.Reply.Text != "" && !e.SideCall {
			texts, said.Author = append(texts, e.Reply.Text), e.Reply.Author
			said.Untrusted = cmp.Or(said.Untrusted, e.Reply.Untrusted)
		}
	}
	said.Text = conversation.Cut(strings.Join(texts, "\n\n"), conversation.MaxMessageBytes)
	return said, len(texts) > 0
}

// JournalSource returns the gravest source of untrusted words that a step had read, by its journal (empty
// means none, S14).
func JournalSource(journal []execution.Entry) string {
	source := ""
	for _, e := range journal {
		source = conversation.GravestSource(source, e.Reply.Untrusted)
	}
	return source
}
