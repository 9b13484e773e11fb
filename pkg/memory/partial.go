package memory

import (
	"cmp"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// PartialMessage is what a step had said when its turn failed, as its journal has it (LP-17).
// It is false when that is nothing.
func PartialMessage(journal []execution.Entry) (conversation.Message, bool) {
	var texts []string
	said := conversation.Message{Role: conversation.RoleAssistant, Partial: true}
	for _, e := range journal {
		if e.Reply.Text != "" && !e.Aside {
			texts, said.Author = append(texts, e.Reply.Text), e.Reply.Author
			said.Untrusted = cmp.Or(said.Untrusted, e.Reply.Untrusted)
		}
	}
	said.Text = conversation.Cut(strings.Join(texts, "\n\n"), conversation.MaxMessageBytes)
	return said, len(texts) > 0
}

// JournalSource is the source of untrusted words that a step had read when it said what is in its journal,
// as conversation.Gravest; empty: none (S14).
func JournalSource(journal []execution.Entry) string {
	source := ""
	for _, e := range journal {
		source = conversation.Gravest(source, e.Reply.Untrusted)
	}
	return source
}
