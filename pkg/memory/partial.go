package memory

import (
	"cmp"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// PartialMessage returns what the model had written in a step before its turn failed, according to the journal of
// the step (LP-17). The message joins the texts of the model replies with blank lines and is cut at
// MaxMessageBytes. Its author is the author of the last reply. It returns false if there is no text.
func PartialMessage(journal []execution.Entry) (conversation.Message, bool) {
	var texts []string
	said := conversation.Message{Role: conversation.RoleAssistant, Partial: true}
	for _, e := range journal {
		if e.Reply.Text != "" && !e.SideCall {
			texts, said.Author = append(texts, e.Reply.Text), e.Reply.Author
			said.Untrusted = cmp.Or(said.Untrusted, e.Reply.Untrusted)
		}
	}
	said.Text = strings.Join(texts, "\n\n")
	said, _ = said.CutToLimit()
	return said, len(texts) > 0
}

// JournalUntrustedSource returns the gravest source of untrusted words that a step had read, according to its
// journal (empty means none, S14).
func JournalUntrustedSource(journal []execution.Entry) string {
	source := ""
	for _, e := range journal {
		source = conversation.MostRestrictiveSource(source, e.Reply.Untrusted)
	}
	return source
}
